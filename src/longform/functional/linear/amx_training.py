"""Linear layers, and two of them with GELU in between, to train through under autocast by the compiled kernels.

With Y = X Wᵀ + b and the gradient dY: dX = dY W, dW = dYᵀ X, db = the sums of dY over rows.

Axes: n rows, D inputs, F outputs, I features inside.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter

from longform.functional.conditions import is_eager
from longform.functional.linear.amx import WHOLE, apart
from longform.functional.linear.amx_gradient import input_gradient, product, weight_gradient
from longform.functional.native.library import best_units

HALF = torch.bfloat16


def linear_trains_natively(x: Tensor, *layers: Tensor | None) -> bool:
    """Whether gradients of x and of ``layers`` on it, each a weight and its bias or None, are the kernels'.

    They take float32 layers under autocast to bfloat16 on a CPU, with sizes that are multiples of 32.
    """
    if not (torch.is_grad_enabled() and torch.is_autocast_enabled("cpu") and is_eager()):
        return False
    parts = [part for part in layers if part is not None]
    if torch.get_autocast_dtype("cpu") != HALF or not any(y.requires_grad for y in (x, *parts)):
        return False
    if any(y.device.type != "cpu" or type(y) not in (Tensor, Parameter) for y in (x, *parts)):
        return False
    given = bool(x.numel()) and x.dtype in (torch.float32, HALF) and all(y.dtype == torch.float32 for y in parts)
    return given and _fit(x.shape[-1], layers) and best_units() is not None


def _fit(features: int, layers: Sequence[Tensor | None]) -> bool:
    """Whether the kernels take such layers, one on ``features`` and each other on those of the one before."""
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        if weight is None or weight.dim() != 2 or weight.shape[1] != features or not weight.is_contiguous():
            return False
        if any(size % WHOLE or not size for size in weight.shape):
            return False
        if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_contiguous()):
            return False
        features = weight.shape[0]
    return True


def trained_linear(x: Tensor, weight: Tensor, bias: Tensor | None, bias_times: Tensor | None = None) -> Tensor:
    """x (..., D) times weight (F, D) transposed, plus bias (F,) -> (..., F) bfloat16.

    ``bias_times`` (...): how many times each row adds the bias.
    """
    times = None if bias is None or bias_times is None else bias_times.float()
    return NativeLinear.apply(x.to(HALF), weight, bias, times)


def trained_feed_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, second: Tensor, shift: Tensor | None
) -> Tensor:
    """GELU(x Wᵀ + b) W2ᵀ + b2, W2 ``second`` and b2 ``shift`` -> (..., F) bfloat16.

    Shapes: x (..., D), W (I, D), b (I,), W2 (F, I), b2 (F,).
    """
    return NativeFeedForward.apply(x.to(HALF), weight, bias, second, shift)


class NativeLinear(torch.autograd.Function):
    """x (..., D) bfloat16, weight (F, D), bias (F,) and its times (...) float32 -> (..., F) bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, times: Tensor | None) -> Tensor:
        """Returns (..., F)."""
        ctx.save_for_backward(x, weight, bias, times)
        each = None if times is None else times.reshape(-1).contiguous()
        return product(_rows(x), weight, bias, bias_times=each).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, weight, bias and its times."""
        x, weight, bias, times = ctx.saved_tensors
        into_x, into_weight, into_bias, into_times = ctx.needs_input_grad
        d_out, d_weight, d_bias, d_times = _rows(gradient), None, None, None
        if into_weight or (into_bias and times is None):
            d_weight, d_bias = weight_gradient(d_out, _rows(x), with_bias=bias is not None and times is None)
        if times is not None:
            wide = d_out.float()
            d_bias = times.reshape(-1) @ wide if into_bias else None
            d_times = (wide @ bias).view(times.shape) if into_times else None
        return input_gradient(d_out, weight).view(x.shape) if into_x else None, d_weight, d_bias, d_times


class NativeFeedForward(torch.autograd.Function):
    """The same, of x in bfloat16 and float32 layers; shapes as above."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, second: Tensor, shift: Tensor | None
    ) -> Tensor:
        """Returns (..., F) bfloat16."""
        rows = _rows(x)
        before = apart(rows, rows.shape[:1], weight.shape[0])
        wide = product(rows, weight, bias, before_gelu=before)
        ctx.save_for_backward(x, weight, second, before, wide)
        ctx.has_bias = bias is not None, shift is not None
        return product(wide, second, shift).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, W, b, W2 and b2."""
        x, weight, second, before, wide = ctx.saved_tensors
        d_out, needed = _rows(gradient), ctx.needs_input_grad
        d_x, d_weight, d_bias, d_second, d_shift = (None,) * 5
        if needed[3] or needed[4]:
            d_second, d_shift = weight_gradient(d_out, wide, with_bias=ctx.has_bias[1])
        if any(needed[:3]):
            d_before = input_gradient(d_out, second, before_gelu=before)
            if needed[1] or needed[2]:
                d_weight, d_bias = weight_gradient(d_before, _rows(x), with_bias=ctx.has_bias[0])
            d_x = input_gradient(d_before, weight).view(x.shape) if needed[0] else None
        return d_x, d_weight, d_bias, d_second, d_shift


def _rows(x: Tensor) -> Tensor:
    """x (..., D) as (n, D) with contiguous rows."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()
