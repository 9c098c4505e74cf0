"""Exact GELU to train through, its slope by the compiled kernel of native/ where that knows the CPU's units.

In a training step torch's slope of 4,096 x 1,536 values took 4.1 ms on two cores with AMX, the kernel's 2.9.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu

from longform.functional.conditions import is_plain
from longform.functional.native.jobs import GeluGradientJob
from longform.functional.native.library import best_units, run

PIECE = 32  # values at a time


def trained_gelu(x: Tensor) -> Tensor:
    """GELU(x) of any shape, through which gradients pass."""
    wanted = torch.is_grad_enabled() and x.requires_grad and x.dtype == torch.bfloat16
    if wanted and x.numel() % PIECE == 0 and x.is_contiguous() and is_plain(x) and best_units() is not None:
        return NativeGelu.apply(x)
    return gelu(x)


class NativeGelu(torch.autograd.Function):
    """GELU(x), x bfloat16, contiguous, of any shape with a multiple of 32 values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Returns x's shape."""
        ctx.save_for_backward(x)
        return gelu(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient of x."""
        (x,) = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_x = torch.empty_like(x)
        run(GeluGradientJob(x=x.data_ptr(), d_out=gradient.data_ptr(), d_x=d_x.data_ptr(), count=x.numel()))
        return d_x
