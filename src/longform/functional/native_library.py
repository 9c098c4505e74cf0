"""The library compiled from native/, where it was built and fits, and the memory that its kernels work in.

Axes: B batch, h heads, d head dimension.
"""

import ctypes
import importlib.util
import threading
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from longform.functional.hardware import has_amx

LINE = 64  # bytes: where rows of tiles begin
KEPT = 2**26  # bytes of working memory that a thread holds on to at most

_local = threading.local()


class Heads(ctypes.Structure):
    """native/attention.h's heads_of: a tensor (B, h, rows, d), d contiguous."""

    _fields_ = [("data", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("batch", "head", "row"))]


class AttentionJob(ctypes.Structure):
    """native/attention.h's attention_job."""

    _fields_ = [
        *((name, Heads) for name in ("query", "key", "value", "slot_key", "slot_value", "out")),
        *((name, ctypes.c_void_p) for name in ("bias", "head_bias", "log_total")),
        *((name, ctypes.c_int64) for name in ("bias_batch", "bias_head", "bias_block")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "queries", "keys", "slots", "dim")),
        *((name, ctypes.c_int64) for name in ("window", "start", "key_start", "threads", "room_bytes")),
        ("room", ctypes.c_void_p),
        ("scale", ctypes.c_float),
    ]


class AttentionGradientJob(ctypes.Structure):
    """native/attention_gradient.h's attention_gradient_job."""

    _fields_ = [
        *((name, Heads) for name in ("query", "key", "value", "slot_key", "slot_value", "out")),
        *((name, Heads) for name in ("d_out", "d_query", "d_key", "d_value")),
        *((name, ctypes.c_void_p) for name in ("log_total", "bias", "head_bias")),
        *((name, ctypes.c_void_p) for name in ("d_slot_key", "d_slot_value", "d_head_bias")),
        *((name, ctypes.c_int64) for name in ("bias_batch", "bias_head", "bias_block")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "queries", "slots", "dim", "window", "parts")),
        *((name, ctypes.c_int64) for name in ("threads", "room_bytes")),
        ("room", ctypes.c_void_p),
        ("scale", ctypes.c_float),
    ]


class LinearJob(ctypes.Structure):
    """native/linear.h's linear_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "residual", "bias_times", "out", "before_gelu")),
        *((name, ctypes.c_int64) for name in ("x_row", "weight_row", "residual_row", "out_row", "before_row")),
        *((name, ctypes.c_int64) for name in ("rows", "weight_rows", "inputs", "outputs", "kind", "ending")),
        *((name, ctypes.c_int64) for name in ("threads", "room_bytes")),
        ("room", ctypes.c_void_p),
    ]


class WeightGradientJob(ctypes.Structure):
    """native/weight_gradient.h's weight_gradient_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "d_out", "d_weight", "d_bias")),
        *((name, ctypes.c_int64) for name in ("x_row", "d_out_row", "rows", "inputs", "outputs")),
        *((name, ctypes.c_int64) for name in ("threads", "room_bytes")),
        ("room", ctypes.c_void_p),
    ]


class GeluGradientJob(ctypes.Structure):
    """native/gelu_gradient.h's gelu_gradient_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "d_out", "d_x")),
        *((name, ctypes.c_int64) for name in ("count", "threads", "room_bytes")),
        ("room", ctypes.c_void_p),
    ]


class MeanJob(ctypes.Structure):
    """native/mean_of_runs.h's mean_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "out", "count")),
        *((name, ctypes.c_int64) for name in ("x_batch", "x_row", "count_batch")),
        *((name, ctypes.c_int64) for name in ("batch", "rows", "features", "size", "sinks", "threads")),
    ]


class NormOfSumJob(ctypes.Structure):
    """native/norm_of_sum.h's norm_of_sum_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("residual", "weight", "bias", "d_out", "branch", "d_rounded")),
        *((name, ctypes.c_void_p) for name in ("out", "mean", "scale", "d_residual", "d_weight", "d_bias")),
        *((name, ctypes.c_void_p) for name in ("rounded", "d_branch")),
        *((name, ctypes.c_int64) for name in ("rows", "features", "threads", "room_bytes")),
        ("room", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
    ]


class NormJob(ctypes.Structure):
    """native/layer_norm.h's norm_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "out")),
        *((name, ctypes.c_int64) for name in ("rows", "features", "threads", "units")),
        ("epsilon", ctypes.c_float),
    ]


Job = AttentionJob | AttentionGradientJob | GeluGradientJob | LinearJob | NormOfSumJob | WeightGradientJob
KERNELS: dict[type[Job], str] = {  # for some units or others
    AttentionJob: "attention",
    AttentionGradientJob: "attention_gradient",
    GeluGradientJob: "gelu_gradient",
    LinearJob: "linear",
    NormOfSumJob: "norm_of_sum",
    WeightGradientJob: "weight_gradient",
}


@cache
def native_library() -> ctypes.CDLL | None:
    """None where the library was not built (no compiler, another system) or does not find torch's OpenMP."""
    found = importlib.util.find_spec("longform.functional._native")
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
