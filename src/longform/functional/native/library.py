"""The library of compiled kernels: whether it is there and fits, which units the machine has, and calling a kernel."""

import ctypes
import importlib.util
import threading
import warnings
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from longform.functional.native.jobs import JOBS, KERNELS, VERSION, Heads, Job, digest
from longform.units import has

UNITS, PORTABLE = ("amx", "avx512"), "portable"  # what kernels are compiled for; loops for any machine
LINE = 64  # bytes of a cache line, where rows of tiles begin
KEPT = 2**26  # bytes of workspace that a thread holds on to at most

_local = threading.local()


@cache
def native_library() -> ctypes.CDLL | None:
    """None where the library was not built (no compiler, another system), or was built from other sources."""
    found = importlib.util.find_spec("longform.functional.native._kernels")
    if found is None or found.origin is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
        _declare(library)
    except (OSError, AttributeError, ValueError) as error:
        warnings.warn(
            f'the compiled kernels in "{found.origin}" are not used, slower paths serve instead ({error}): install '
            "Longform again to compile them anew",
            stacklevel=2,
        )
        return None
    return library


def _declare(library: ctypes.CDLL) -> None:
    """Say what the library's functions take. Raises ValueError where it was built for others than those of jobs.py."""
    wanted = [VERSION, digest((Heads, *JOBS)), *map(ctypes.sizeof, JOBS)]
    if list((ctypes.c_int64 * len(wanted)).in_dll(library, "longform_built_for")) != wanted:
        raise ValueError("it was built from other sources")
    library.longform_grants_amx.restype = ctypes.c_int
    for (job, name), units in product(KERNELS.items(), (*UNITS, PORTABLE)):
        kernel, workspace = library[f"longform_{name}_{units}"], library[f"longform_{name}_workspace_{units}"]
        kernel.argtypes = workspace.argtypes = [ctypes.POINTER(job)]
        kernel.restype, workspace.restype = None, ctypes.c_int64


@cache
def best_units() -> str | None:
    """The best units of this machine that kernels are written for: of ``UNITS``, or None."""
    library = native_library()
    if library is None or not has("avx512_bf16"):
        return None
    return "amx" if has("amx") and library.longform_grants_amx() else "avx512"


def kernels() -> str:
    """Compiled kernels that serve by themselves: "amx" (all), "avx512" (those of attention) or "none"."""
    return best_units() or "none"


def run(job: Job) -> None:
    """Have ``job`` done with torch's threads, by this machine's units, or by loops where it has none."""
    job.threads = torch.get_num_threads()
    given = ctypes.byref(job)
    name, units = KERNELS[type(job)], best_units() or PORTABLE
    job.workspace_bytes = _function(f"longform_{name}_workspace_{units}")(given)
    workspace = _workspace(job.threads * job.workspace_bytes + LINE)
    job.workspace = -(-workspace.data_ptr() // LINE) * LINE
    _function(f"longform_{name}_{units}")(given)


@cache
def _function(name: str) -> Any:
    library = native_library()
    assert library is not None
    return library[name]


def _workspace(size: int) -> Tensor:
    """Memory of at least ``size`` bytes, uint8 of shape (size,), this thread's.

    It is kept for the next call, which spares the system mapping it anew.
    """
    workspace = getattr(_local, "workspace", None)
    if workspace is None or workspace.numel() < size:
        workspace = torch.empty(size, dtype=torch.uint8)
        if size <= KEPT:
            _local.workspace = workspace
    return workspace
