"""Layer normalisation of a sum, by torch, or in inference on a GPU by a Triton kernel.

Axes: n tokens, F features.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from longform.functional.execution import Execution, autocasts, execution_mode
from longform.functional.triton_support import DTYPES, OPTIONS, attempt, has_triton

MOST_FEATURES = 4096


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, epsilon: float, residual: Tensor | None = None
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis: x (..., F), weight, bias (F) -> (...,
    F). ``residual`` (..., F): x plus that is normalised.
    """
    if x.is_cuda and not torch.is_grad_enabled() and suits_triton(x, weight, bias, residual):
        found = norm_by_triton(x, weight, bias, epsilon=epsilon, residual=residual)
        if found is not NotImplemented:
            return found
    x = x if residual is None else residual + x
    return torch_layer_norm(x, x.shape[-1:], weight, bias, epsilon)


def suits_triton(x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None = None) -> bool:
    """Whether ``norm_by_triton`` takes such tensors here: contiguous, of 1 to 4,096 features, not under autocast."""
    if not (0 < x.shape[-1] <= MOST_FEATURES and x.dtype in DTYPES and x.numel() > 0):
        return False
    if not all(given is None or given.is_contiguous() for given in (x, weight, bias, residual)):
        return False
    same = residual is None or (residual.shape == x.shape and residual.dtype == x.dtype)
    plain = execution_mode() is Execution.PLAIN and not autocasts(x)
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
