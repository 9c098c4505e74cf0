"""Arguments of the compiled kernels: the structures of csrc/jobs.h, which hold tensors as pointers.

Every address that a kernel gets passes through ``pointer`` or ``strided`` (``heads_of`` calls it), which assert
the dtype, the shape and the strides that the kernel will read it with.

Axes: B batch, h heads, d head dimension.
"""

import ctypes
import zlib
from typing import Any

import torch
from torch import Tensor

VERSION = 2  # of what kernels do with these structures; csrc/jobs.h has the same, and with `digest` too
POINTER, INTEGER, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
Field = tuple[str, Any]
WORKERS: list[Field] = [("threads", INTEGER), ("workspace_bytes", INTEGER), ("workspace", POINTER)]


def _fields(kind: Any, names: str) -> list[Field]:
    return [(name, kind) for name in names.split()]


class Heads(ctypes.Structure):
    """A tensor (B, h, rows, d) by its address and its strides in elements; d is contiguous."""

    _fields_ = [*_fields(POINTER, "data"), *_fields(INTEGER, "batch head row")]


class AttentionJob(ctypes.Structure):
    """Attention over slots, and with a window over near keys too."""

    _fields_ = [
        *_fields(Heads, "query key value slot_key slot_value out"),
        *_fields(POINTER, "bias head_bias log_total tokens"),
        *_fields(INTEGER, "bias_batch bias_head bias_block batch heads queries keys slots dim window start key_start"),
        *_fields(INTEGER, "tokens_of_block"),
        *WORKERS,
        ("scale", FLOAT),
    ]


class AttentionGradientJob(ctypes.Structure):
    """The gradients of attention."""

    _fields_ = [
        *_fields(Heads, "query key value slot_key slot_value out d_out d_query d_key d_value"),
        *_fields(POINTER, "log_total bias head_bias d_slot_key d_slot_value d_head_bias"),
        *_fields(INTEGER, "bias_batch bias_head bias_block batch heads queries slots dim window parts"),
        *WORKERS,
        ("scale", FLOAT),
    ]


class LinearJob(ctypes.Structure):
    """A linear layer with what follows it."""

    _fields_ = [
        *_fields(POINTER, "x weight bias residual out"),
        *_fields(INTEGER, "x_row residual_row out_row rows inputs outputs gelu"),
        *WORKERS,
    ]


Job = AttentionJob | AttentionGradientJob | LinearJob
KERNELS: dict[type[Job], str] = {
    AttentionJob: "attention",
    AttentionGradientJob: "attention_gradient",
    LinearJob: "linear",
}
JOBS: tuple[type[Job], ...] = tuple(KERNELS)  # in the order of csrc/module.c


def digest(jobs: tuple[type[ctypes.Structure], ...] = (Heads, *JOBS)) -> int:
    """A number made of the names, offsets and sizes of all fields, which differs where a structure does."""
    fields = [(name, getattr(job, name).offset, getattr(job, name).size) for job in jobs for name, *_ in job._fields_]
    return zlib.crc32(repr(fields).encode())


def pointer(x: Tensor | None, dtype: torch.dtype, *shape: int) -> int | None:
    """The address of a contiguous ``x`` of that dtype and shape; None for None."""
    if x is None:
        return None
    assert x.is_contiguous(), f"strides {x.stride()} of shape {tuple(x.shape)}"
    return _address(x, dtype, shape)


def strided(x: Tensor, dtype: torch.dtype, *shape: int) -> tuple[int, ...]:
    """The address of ``x`` of that dtype and shape, its last axis contiguous, and the strides of the others."""
    assert x.stride(-1) == 1 or not x.numel(), f"strides {x.stride()} of shape {tuple(x.shape)}"
    return _address(x, dtype, shape), *x.stride()[:-1]


def heads_of(x: Tensor, *shape: int) -> Heads:
    """A bfloat16 ``x`` (B, h, rows, d) of that shape, d contiguous."""
    return Heads(*strided(x, torch.bfloat16, *shape))


def _address(x: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    assert x.dtype == dtype and x.shape == shape, f"{x.dtype} {tuple(x.shape)}, not {dtype} {shape}"  # noqa: PT018
    assert x.is_cpu, x.device
    return x.data_ptr()


def contiguous_rows(x: Tensor) -> Tensor:
    """x of shape (..., F) with contiguous rows: itself where they are."""
    return x if x.stride(-1) == 1 else x.contiguous()


def flat_rows(x: Tensor) -> Tensor:
    """x (..., F) as (n, F) with contiguous rows."""
    return contiguous_rows(x.reshape(-1, x.shape[-1]))
