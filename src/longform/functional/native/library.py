"""The library compiled from native/, where it was built and fits, and the memory that its kernels work in."""

import ctypes
import importlib.util
import threading
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from longform.functional.hardware import has_amx
from longform.functional.native.jobs import KERNELS, Job, MeanJob, NormJob

LINE = 64  # bytes: where rows of tiles begin
KEPT = 2**26  # bytes of working memory that a thread holds on to at most

_local = threading.local()


@cache
def native_library() -> ctypes.CDLL | None:
    """None where the library was not built (no compiler, another system) or does not find torch's OpenMP."""
    found = importlib.util.find_spec("longform.functional.native._kernels")
    if found is None or found.origin is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
    except OSError:
        return None
    for (job, name), units in product(KERNELS.items(), ("amx", "portable")):
        kernel, room = library[f"longform_{name}_{units}"], library[f"longform_{name}_{units}_room"]
        kernel.argtypes = room.argtypes = [ctypes.POINTER(job)]
        kernel.restype, room.restype = None, ctypes.c_int64
    for kernel, job in ((library.longform_mean_of_runs, MeanJob), (library.longform_layer_norm, NormJob)):
        kernel.argtypes, kernel.restype = [ctypes.POINTER(job)], None
    return library


@cache
def best_units() -> str | None:
    """The units of this machine that a kernel was written for: "amx", or None."""
    library = native_library()
    if library is None or not has_amx() or not torch.cpu._is_avx512_bf16_supported():
        return None
    return "amx" if library.longform_grants_amx() else None


def kernels() -> str:
    """What was compiled and can serve: "amx" (all kernels), "generic" (those that need no AMX) or "none"."""
    return best_units() or ("none" if native_library() is None else "generic")


def run(job: Job) -> None:
    """Give ``job`` threads and memory, and have it done by this machine's units, or by loops where it has none."""
    kernel, room_of = _kernel(type(job), best_units() or "portable")
    job.threads = torch.get_num_threads()
    given = ctypes.byref(job)
    job.room_bytes = room_of(given)
    room = _room(job.threads * job.room_bytes + LINE)
    job.room = -(-room.data_ptr() // LINE) * LINE
    kernel(given)


@cache
def _kernel(job: type[Job], units: str) -> tuple[Any, Any]:
    """The function that does such jobs, and the one that says how many bytes a thread needs for it."""
    library, name = native_library(), f"longform_{KERNELS[job]}_{units}"
    assert library is not None
    return library[name], library[f"{name}_room"]


def _room(size: int) -> Tensor:
    """Memory of at least ``size`` bytes, uint8 of shape (size,), this thread's.

    It is kept for the next call, which spares the system mapping it anew.
    """
    room = getattr(_local, "room", None)
    if room is None or room.numel() < size:
        room = torch.empty(size, dtype=torch.uint8)
        if size <= KEPT:
            _local.room = room
    return room
