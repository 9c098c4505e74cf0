"""Facts about tensors and the machine that several kernels ask for before they serve."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from longform.functional.execution import Execution, execution_mode
from longform.functional.native.library import best_units, native_library
from longform.units import allows, has

BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # of x86, then of ARM
TILE_MULTIPLE = 32  # features: the rows of two tiles, and the pairs of one
FEWEST_QUERIES = 16  # of the compiled kernels of attention: torch's was faster for one query, slower for 16


def lacks_compiled(call: Any, forced: bool, *, trains: bool) -> str | None:
    """The first thing that a ``call`` of attention, with a window or without, lacks for a compiled kernel; None for
    nothing. ``trains``: the kernel is one through which gradients pass.
    """
    if call.dropout:
        return "no dropout"
    if call.distance_bias is not None:
        return "no bias by distance"
    if execution_mode() is not Execution.PLAIN:
        return "eager execution (no graph is traced, no torch.func transform, no dispatch mode)"
    if call.wants_gradient is not trains:
        return "a gradient to form" if trains else "no gradient to form"
    if not all(is_plain(x, call.query.dtype) for x in (call.query, call.key, call.value)):
        return "plain tensors of one dtype on a CPU"
    if call.query.shape[-1] % TILE_MULTIPLE:
        return f"a head dimension that is a multiple of {TILE_MULTIPLE}"
    if call.query.shape[-2] < FEWEST_QUERIES and not forced:
        return f"at least {FEWEST_QUERIES} queries"
    return _lacks_units(forced)


def _lacks_units(forced: bool) -> str | None:
    if native_library() is None:
        return "compiled kernels"
    return "a CPU with AVX512-bf16" if best_units() is None and not forced else None


def ask_gradient(tensors: Iterable[Tensor | None]) -> bool:
    """Whether autograd will ask for a gradient of any of ``tensors``."""
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


def is_plain(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether ``x``, of any shape, is a torch.Tensor or Parameter itself, on a CPU, of that dtype."""
    return x.dtype == dtype and x.is_cpu and (type(x) is Tensor or type(x) is Parameter)


def native_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices; elsewhere torch emulates it, slower than float32.

    Measured on one core of a Zen 4 with AVX512-bf16, n = 512, base size: 75 ms a layer in float32, 41 in bfloat16;
    a training step of MiniLM's size at n = 4,096: 576 and 334 ms a layer.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not allows("avx512_bf16"):
        return False
    if not hasattr(torch.cpu, "get_capabilities"):  # older torch
        return has("avx512_bf16") or has("amx")
    found = torch.cpu.get_capabilities()
    return any(found.get(unit, False) for unit in BFLOAT16_UNITS)
