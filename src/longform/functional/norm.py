"""Layer normalisation of a sum, by torch, or in inference by a kernel of csrc/rows.c or of Triton.

Torch's takes 0.39 ms for 2,048 rows of 768 features in bfloat16 on two cores with AVX512-bf16, the kernel 0.29; in
place it also spares the memory of its output, which is in no cache.

Axes: n tokens, F features.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from longform.functional.conditions import is_plain
from longform.functional.execution import Execution, execution_mode
from longform.functional.native.jobs import NormJob, pointer
from longform.functional.native.library import native_library, run
from longform.functional.triton_support import DTYPES, OPTIONS, attempt, has_triton

MOST_FEATURES = 4096  # csrc/jobs.h
FEATURE_MULTIPLE = 64


def layer_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    epsilon: float,
    in_place: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis: x (..., F), weight, bias (F) -> (...,
    F).

    ``in_place``: nobody needs x afterwards, its memory may be the output's. ``residual`` (..., F): x plus that is
    normalised.
    """
    if not torch.is_grad_enabled():
        if x.is_cuda and suits_triton(x, weight, bias, residual):
            found = norm_by_triton(x, weight, bias, epsilon=epsilon, residual=residual)
            if found is not NotImplemented:
                return found
        elif weight is not None and bias is not None and suits_library(x, weight, bias, residual):
            return norm_by_library(x, weight, bias, epsilon=epsilon, in_place=in_place, residual=residual)
    x = x if residual is None else residual + x
    return torch_layer_norm(x, x.shape[-1:], weight, bias, epsilon)


def suits_library(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None = None) -> bool:
    """Whether ``norm_by_library`` takes such tensors here: plain and contiguous, bfloat16 on a CPU, F a multiple of 64
    and at most 4,096.
    """
    if x.shape[-1] % FEATURE_MULTIPLE or x.shape[-1] > MOST_FEATURES or x.numel() == 0:
        return False
    if residual is not None and residual.shape != x.shape:
        return False
    for given in (x, weight, bias) if residual is None else (x, weight, bias, residual):
        if not (is_plain(given, torch.bfloat16) and given.is_contiguous()):
            return False
    return execution_mode() is Execution.PLAIN and native_library() is not None


def norm_by_library(
    x: Tensor, weight: Tensor, bias: Tensor, *, epsilon: float, in_place: bool = False, residual: Tensor | None = None
) -> Tensor:
    """layer_norm of x (..., F) by csrc/rows.c, without gradients: (..., F)."""
    features = x.shape[-1]
    x = x if residual is None else residual + x
    out = x if in_place or residual is not None else torch.empty_like(x)
    run(NormJob(
        x=pointer(x, torch.bfloat16, *x.shape), out=pointer(out, torch.bfloat16, *x.shape),
        weight=pointer(weight, torch.bfloat16, features), bias=pointer(bias, torch.bfloat16, features),
        rows=x.numel() // features, features=features, epsilon=epsilon,
    ))  # fmt: skip
    return out


def suits_triton(x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None = None) -> bool:
    """Whether ``norm_by_triton`` takes such tensors here: contiguous, of 1 to 4,096 features, not under autocast."""
    if not (0 < x.shape[-1] <= MOST_FEATURES and x.dtype in DTYPES and x.numel() > 0):
        return False
    if not all(given is None or given.is_contiguous() for given in (x, weight, bias, residual)):
        return False
    same = residual is None or (residual.shape == x.shape and residual.dtype == x.dtype)
    plain = execution_mode() is Execution.PLAIN and not torch.is_autocast_enabled(x.device.type)
    return same and plain and has_triton()


def norm_by_triton(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, epsilon: float, residual: Tensor | None = None
) -> Any:
    """layer_norm of x (..., F) by one Triton program, without gradients: (..., F); NotImplemented where Triton cannot
    compile it.
    """
    from longform.functional import norm_programs as programs

    out, features = torch.empty_like(x), x.shape[-1]
    sizes: Any = {"FEATURES": features, "WIDE": 1 << (features - 1).bit_length(), **OPTIONS}

    def normalised() -> Tensor:
        with torch.cuda.device_of(x):
            programs.normalise[(x.numel() // features,)](x, residual, weight, bias, out, epsilon, **sizes)
        return out

    return attempt(("norm", x.dtype, features), normalised)
