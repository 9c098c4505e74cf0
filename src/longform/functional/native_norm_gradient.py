"""The norm of a residual and a branch to train through, by the compiled kernel of native/: float32 plus bfloat16.

Under autocast a layer adds the bfloat16 output of a part to its float32 input, normalises the sum, and has the result
rounded again by every product that it goes into. One pass does all three, forwards and backwards.

Axes: n tokens, F features.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longform.functional.conditions import is_eager
from longform.functional.native.jobs import NormOfSumJob
from longform.functional.native.library import best_units, run

WHOLE = 32  # features that fill the kernel's vectors
HALF = torch.bfloat16


def norm_of_sum_trains(residual: Tensor, branch: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernel takes residual, branch (..., F) of one shape and weight, bias (F), with gradients wanted."""
    if bias is None or residual.shape != branch.shape or residual.shape[-1] % WHOLE or not residual.numel():
        return False
    if (residual.dtype, branch.dtype) != (torch.float32, HALF) or not weight.dtype == bias.dtype == torch.float32:
        return False
    given = (residual, branch, weight, bias)
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    plain = all(type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu" for x in given)
    return wanted and plain and is_eager() and best_units() is not None


class NormOfSum(torch.autograd.Function):
    """Layer norm of residual (n, F) float32 plus branch (n, F) bfloat16, or of more axes; weight, bias (F,) float32."""

    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, epsilon: float, with_rounded: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the norm (..., F) in float32, and the same in bfloat16 or None."""
        given = residual, branch, weight, bias = [x.contiguous() for x in (residual, branch, weight, bias)]
        out, rounded = torch.empty_like(residual), torch.empty_like(branch) if with_rounded else None
        mean, scale = (residual.new_empty(residual.shape[:-1]) for _ in range(2))
        job = _job(*given, epsilon)
        job.out, job.mean, job.scale = (x.data_ptr() for x in (out, mean, scale))
        if rounded is not None:
            job.rounded = rounded.data_ptr()
        run(job)
        ctx.save_for_backward(*given, mean, scale)
        ctx.set_materialize_grads(False)
        return out, rounded

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor | None, d_rounded: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of residual, branch, weight and bias."""
        residual, branch, weight, bias, mean, scale = ctx.saved_tensors
        if d_out is None and d_rounded is None:
            return (None,) * 6
        job = _job(residual, branch, weight, bias, 0.0)
        job.mean, job.scale = mean.data_ptr(), scale.data_ptr()
        held = [None if d is None else d.contiguous() for d in (d_out, d_rounded)]
        job.d_out, job.d_rounded = (None if d is None else d.data_ptr() for d in held)
        found = [torch.empty_like(x) for x in (residual, branch, weight, bias)]
        job.d_residual, job.d_branch, job.d_weight, job.d_bias = (x.data_ptr() for x in found)
        run(job)
        return *found, None, None


def _job(residual: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> NormOfSumJob:
    features = residual.shape[-1]
    return NormOfSumJob(
        residual=residual.data_ptr(), branch=branch.data_ptr(), weight=weight.data_ptr(), bias=bias.data_ptr(),
        rows=residual.numel() // features, features=features, epsilon=epsilon,
    )  # fmt: skip
