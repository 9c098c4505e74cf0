"""Layer normalisation, of a tensor and of a residual plus a branch, by torch or by compiled kernels.

In inference (csrc/rows.c): torch's takes 0.39 ms for 2,048 rows of 768 features in bfloat16 on two cores with
AVX512-bf16, the kernel 0.29; in place it also spares the memory of its output, which is in no cache. In training
(csrc/norm_of_sum.c): under autocast a branch is bfloat16 and the residual float32; torch adds them, normalises the sum
and rounds the result for the next products in passes of their own, forwards and backwards.

Axes: n tokens, F features.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from longform.functional import dispatch
from longform.functional.conditions import (
    AMX,
    BFLOAT16,
    EAGER,
    GRADIENT,
    LIBRARY,
    NO_GRADIENT,
    PLAIN,
    TILE_MULTIPLE,
    Call,
    is_plain,
)
from longform.functional.dispatch import Condition, Kernel
from longform.functional.native.jobs import NormJob, NormOfSumJob, pointer
from longform.functional.native.library import run
from longform.functional.second_gradient import Gradients, differentiable_by

MOST_FEATURES = 4096  # csrc/jobs.h
FEATURE_MULTIPLE = 64


@dataclass(eq=False)
class NormCall(Call):
    """x (..., F), weight and bias (F) or None; ``in_place``: the output may be x's memory."""

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    epsilon: float
    in_place: bool

    def __post_init__(self) -> None:
        self.tensors = (self.x,)
        if self.weight is not None and self.bias is not None:
            self.tensors = (self.x, self.weight, self.bias)


@dataclass(eq=False)
class NormOfSumCall(Call):
    """residual, branch (..., F), weight and bias (F) or None."""

    residual: Tensor
    branch: Tensor
    weight: Tensor | None
    bias: Tensor | None
    epsilon: float

    def __post_init__(self) -> None:
        given = (self.residual, self.branch, self.weight, self.bias)
        self.tensors = tuple(x for x in given if x is not None)


def _by_torch(call: NormCall) -> Tensor:
    return torch_layer_norm(call.x, call.x.shape[-1:], call.weight, call.bias, call.epsilon)


def _compiled(call: NormCall) -> Tensor:
    x, features = call.x, call.x.shape[-1]
    out = x if call.in_place else torch.empty_like(x)
    run(NormJob(
        x=pointer(x, torch.bfloat16, *x.shape), out=pointer(out, torch.bfloat16, *x.shape),
        weight=pointer(call.weight, torch.bfloat16, features), bias=pointer(call.bias, torch.bfloat16, features),
        rows=x.numel() // features, features=features, epsilon=call.epsilon,
    ))  # fmt: skip
    return out


def _contiguous(call: Any) -> bool:
    has_both = len(call.tensors) == 3
    return has_both and call.x.is_contiguous() and call.weight.is_contiguous() and call.bias.is_contiguous()


def _mixed(call: NormOfSumCall) -> bool:
    """A float32 residual, a bfloat16 branch, float32 weight and bias, all plain tensors on a CPU."""
    residual, branch, *layer = call.tensors
    return is_plain(branch, torch.bfloat16) and all(is_plain(x, torch.float32) for x in (residual, *layer))


def _fits(call: NormOfSumCall) -> bool:
    given, bias = call.residual, call.bias
    return (
        bias is not None
        and given.shape == call.branch.shape
        and bool(given.numel())
        and not (given.shape[-1] % TILE_MULTIPLE)
    )


def _two_steps(call: NormOfSumCall) -> tuple[Tensor, Tensor]:
    out = layer_norm(call.residual + call.branch, call.weight, call.bias, epsilon=call.epsilon, in_place=True)
    return out, out


def _trained(call: NormOfSumCall) -> tuple[Tensor, Tensor]:
    return NormOfSum.apply(*call.tensors, call.epsilon)


NORM = dispatch.operation(
    "norm",
    Kernel("compiled", _compiled, (
        BFLOAT16, EAGER, PLAIN, NO_GRADIENT,
        Condition("contiguous input with weight and bias", _contiguous, of_values=True),
        Condition(f"a multiple of {FEATURE_MULTIPLE} features, at most {MOST_FEATURES}", lambda call: (
            call.x.numel() > 0 and call.x.shape[-1] % FEATURE_MULTIPLE == 0 and call.x.shape[-1] <= MOST_FEATURES
        )), LIBRARY,
    )),
    Kernel("torch", _by_torch),
)  # fmt: skip
NORM_OF_SUM = dispatch.operation(
    "norm_of_sum",
    Kernel("amx_training", _trained, (
        EAGER, Condition("a float32 residual and a bfloat16 branch on a CPU", _mixed), GRADIENT,
        Condition(f"one shape, a multiple of {TILE_MULTIPLE} features", _fits), LIBRARY, AMX,
    )),
    Kernel("two_steps", _two_steps),
)  # fmt: skip


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, epsilon: float, in_place: bool = False
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis: x (..., F), weight, bias (F) -> (...,
    F).

    ``in_place``: nobody needs x afterwards, its memory may be the output's.
    """
    return dispatch.run(NORM, NormCall(x, weight, bias, epsilon, in_place))


def norm_of_sum(
    residual: Tensor, branch: Tensor, weight: Tensor | None, bias: Tensor | None, *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """``layer_norm`` of residual + branch, (..., F) both, and the same as products under autocast round it: (..., F)
    each.

    Where nothing rounds both are one tensor.
    """
    return dispatch.run(NORM_OF_SUM, NormOfSumCall(residual, branch, weight, bias, epsilon))


def _sum_formula(
    residual: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    out = torch_layer_norm(residual + branch, residual.shape[-1:], weight, bias, epsilon)
    return out, out


class NormOfSum(torch.autograd.Function):
    """Layer norm of residual (..., F) float32 plus branch (..., F) bfloat16; weight, bias (F) float32."""

    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """Returns the norm (..., F) in float32, and in bfloat16."""
        given = residual, branch, weight, bias
        residual, branch, weight, bias = whole = [x.contiguous() for x in given]
        out, rounded = torch.empty_like(residual), torch.empty_like(branch)
        mean, scale = (residual.new_empty(residual.shape[:-1]) for _ in range(2))
        job = _sum_job(*whole, mean, scale, epsilon)
        job.out, job.rounded = pointer(out, torch.float32, *out.shape), pointer(rounded, torch.bfloat16, *out.shape)
        run(job)
        ctx.save_for_backward(*given, mean, scale)
        ctx.options = (epsilon,)
        ctx.set_materialize_grads(False)
        return out, rounded

    @staticmethod
    @differentiable_by(_sum_formula)
    def backward(ctx: Any, d_out: Tensor | None, d_rounded: Tensor | None) -> Gradients:
        """Gradients of residual, branch, weight and bias."""
        residual, branch, weight, bias, mean, scale = (x.contiguous() for x in ctx.saved_tensors)
        if d_out is None and d_rounded is None:
            return (None,) * 5
        job = _sum_job(residual, branch, weight, bias, mean, scale, 0.0)
        d_out, d_rounded = (None if d is None else d.contiguous() for d in (d_out, d_rounded))
        job.d_out, job.d_rounded = (
            pointer(d_out, torch.float32, *residual.shape), pointer(d_rounded, torch.bfloat16, *residual.shape)
        )  # fmt: skip
        found = [torch.empty_like(x) for x in (residual, branch, weight, bias)]
        job.d_residual, job.d_branch, job.d_weight, job.d_bias = (pointer(x, x.dtype, *x.shape) for x in found)
        run(job)
        return *found, None


def _sum_job(
    residual: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, epsilon: float
) -> NormOfSumJob:
    features = residual.shape[-1]
    return NormOfSumJob(
        residual=pointer(residual, torch.float32, *residual.shape),
        branch=pointer(branch, torch.bfloat16, *residual.shape),
        weight=pointer(weight, torch.float32, features), bias=pointer(bias, torch.float32, features),
        mean=pointer(mean, torch.float32, *residual.shape[:-1]),
        scale=pointer(scale, torch.float32, *residual.shape[:-1]),
        rows=residual.numel() // features, features=features, epsilon=epsilon,
    )  # fmt: skip
