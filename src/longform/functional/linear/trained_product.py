"""E X to train through by the compiled kernels, for one text in bfloat16 on a CPU whose units they know.

Axes: k rows of E, n tokens, D features.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longform.functional.conditions import is_plain
from longform.functional.linear.amx import LONGEST, WHOLE, native_product
from longform.functional.linear.amx_gradient import weight_gradient
from longform.functional.native.library import best_units


def product_trains_natively(left: Tensor, right: Tensor) -> bool:
    """Whether the gradients of left (k, n) times right (n, D) are the kernels': not too long for the second cache."""
    if not (torch.is_grad_enabled() and (left.requires_grad or right.requires_grad) and is_plain(left, right)):
        return False
    length, features = right.shape
    fits = 0 < length <= LONGEST and not length % WHOLE and not features % WHOLE and left.numel() and features
    return bool(fits) and left.dtype == torch.bfloat16 and best_units() is not None


class NativeProduct(torch.autograd.Function):
    """left (k, n) times right (n, D), bfloat16; n and D are multiples of 32."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        """Returns (k, D)."""
        ctx.save_for_backward(left, right)
        return native_product(left, right)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of left and right."""
        left, right = ctx.saved_tensors
        d_right = None
        if ctx.needs_input_grad[1]:
            left, slope = (x if x.stride(1) == 1 else x.contiguous() for x in (left, gradient))
            d_right = weight_gradient(left, slope, with_bias=False)[0].to(right.dtype)
        return gradient @ right.t() if ctx.needs_input_grad[0] else None, d_right
