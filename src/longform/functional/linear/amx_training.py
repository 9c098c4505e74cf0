"""Linear layers, and two of them with GELU in between, in training under autocast, by compiled kernels with AMX.

Under autocast torch copies every float32 weight as bfloat16, and its gradient back. The kernels (csrc/linear.c,
weight_gradient.c) round weights while they lay them out in tiles, a few panels ahead of the product, and sum gradients
in float32 where they belong. With Y = X Wᵀ + b and the gradient dY: dX = dY W, dW = dYᵀ X, db = the sums of dY over
rows.

Axes: n rows, D inputs, F outputs, I features inside a feed-forward part.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu
from torch.nn.functional import linear as plain_linear

from longform.functional.conditions import TILE_MULTIPLE, ask_gradient, is_plain
from longform.functional.execution import has_values
from longform.functional.linear.amx import FLOAT32, FLOAT32_TRANSPOSED, GELU, GELU_SLOPE, NO_EPILOGUE, apart, has_units
from longform.functional.native.jobs import LinearJob, WeightGradientJob, flat_rows, pointer, strided
from longform.functional.native.library import run
from longform.functional.second_gradient import Gradients, differentiable_by


def suits_amx(x: Tensor, *layers: Tensor | None) -> bool:
    """Whether AmxLinear or AmxFeedForward trains ``layers``, weights (F, D) that follow each other and their biases (F)
    or None, on x (..., D): float32 under autocast to bfloat16, contiguous, sizes multiples of 32, on a CPU with AMX.
    """
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    if not (autocast and has_units() and has_values() and ask_gradient((x, *layers))):
        return False
    wide = is_plain(x, x.dtype) and x.dtype in (torch.float32, torch.bfloat16)
    return wide and all(y is None or is_plain(y, torch.float32) for y in layers) and _fit_tiles(x, layers)


def _fit_tiles(x: Tensor, layers: tuple[Tensor | None, ...]) -> bool:
    """Whether ``layers``, see suits_amx, follow each other, are contiguous, and have sizes that are multiples of 32."""
    features = x.shape[-1]
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        if weight is None or weight.dim() != 2 or weight.shape[1] != features or not weight.is_contiguous():
            return False
        if any(size % TILE_MULTIPLE or not size for size in weight.shape):
            return False
        if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_contiguous()):
            return False
        features = weight.shape[0]
    return bool(x.numel())


def _feed_forward(x: Tensor, weight: Tensor, bias: Tensor | None, second: Tensor, second_bias: Tensor | None) -> Tensor:
    return plain_linear(gelu(plain_linear(x, weight, bias)), second, second_bias)


class AmxLinear(torch.autograd.Function):
    """x (..., D) bfloat16, weight (F, D) and bias (F) float32 -> (..., F) bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Returns (..., F)."""
        ctx.save_for_backward(x, weight, bias)
        ctx.options = ()
        return product(flat_rows(x), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    @differentiable_by(plain_linear)
    def backward(ctx: Any, saved: Any, gradient: Tensor) -> Gradients:
        """Gradients of x, weight and bias."""
        x, weight, bias = saved
        into_x, *into_layer = ctx.needs_input_grad
        d_out, d_weight, d_bias = flat_rows(gradient), None, None
        if any(into_layer):
            d_weight, d_bias = weight_gradient(d_out, flat_rows(x), with_bias=bias is not None)
        return input_gradient(d_out, weight).view(x.shape) if into_x else None, d_weight, d_bias


class AmxFeedForward(torch.autograd.Function):
    """GELU(x Wᵀ + b) W2ᵀ + b2: x (..., D) bfloat16, W (I, D), b (I), W2 (F, I), b2 (F) float32 -> (..., F) bfloat16."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, second: Tensor, second_bias: Tensor | None
    ) -> Tensor:
        """Returns (..., F)."""
        rows = flat_rows(x)
        before = apart(rows, rows.shape[:1], weight.shape[0])
        wide = product(rows, weight, bias, before_gelu=before)
        ctx.save_for_backward(x, weight, bias, second, second_bias, before, wide)
        ctx.options = ()
        return product(wide, second, second_bias).view(*x.shape[:-1], -1)

    @staticmethod
    @differentiable_by(_feed_forward)
    def backward(ctx: Any, saved: Any, gradient: Tensor) -> Gradients:
        """Gradients of x, W, b, W2 and b2."""
        x, weight, bias, second, second_bias, before, wide = saved
        d_out, needed = flat_rows(gradient), ctx.needs_input_grad
        d_x, d_weight, d_bias, d_second, d_second_bias = (None,) * 5
        if needed[3] or needed[4]:
            d_second, d_second_bias = weight_gradient(d_out, wide, with_bias=second_bias is not None)
        if any(needed[:3]):
            d_before = input_gradient(d_out, second, before_gelu=before)
            if needed[1] or needed[2]:
                d_weight, d_bias = weight_gradient(d_before, flat_rows(x), with_bias=bias is not None)
            d_x = input_gradient(d_before, weight).view(x.shape) if needed[0] else None
        return d_x, d_weight, d_bias, d_second, d_second_bias


def product(x: Tensor, weight: Tensor, bias: Tensor | None, *, before_gelu: Tensor | None = None) -> Tensor:
    """x (n, D) bfloat16 times weight (F, D) transposed, plus bias (F), both float32 -> (n, F) bfloat16.

    With ``before_gelu``, memory (n, F), exact GELU of it; what that was taken of is left there.
    """
    job = LinearJob(kind=FLOAT32_TRANSPOSED, epilogue=NO_EPILOGUE if before_gelu is None else GELU)
    job.bias = pointer(bias, torch.float32, weight.shape[0])
    return _done(job, x, weight, before_gelu, weight.shape[0])


def input_gradient(d_out: Tensor, weight: Tensor, *, before_gelu: Tensor | None = None) -> Tensor:
    """d_out (n, F) bfloat16 times weight (F, D) float32 -> (n, D) bfloat16, times GELU'(``before_gelu`` (n, D))."""
    job = LinearJob(kind=FLOAT32, epilogue=NO_EPILOGUE if before_gelu is None else GELU_SLOPE)
    return _done(job, d_out, weight, before_gelu, weight.shape[1])


def _done(job: LinearJob, x: Tensor, weight: Tensor, before_gelu: Tensor | None, outputs: int) -> Tensor:
    """The job's output (n, ``outputs``); inside a feed-forward part its rows stand ``apart``."""
    out = x.new_empty(len(x), outputs) if before_gelu is None else apart(x, x.shape[:1], outputs)
    (job.rows, job.inputs), job.outputs = x.shape, outputs
    shape = (job.inputs, outputs) if job.kind == FLOAT32 else (outputs, job.inputs)
    job.x, job.x_row = strided(x, torch.bfloat16, *x.shape)
    job.out, job.out_row = strided(out, torch.bfloat16, len(x), outputs)
    job.weight, job.weight_row = strided(weight, torch.float32, *shape)
    if before_gelu is not None:
        job.before_gelu, job.before_row = strided(before_gelu, torch.bfloat16, len(x), outputs)
    run(job)
    return out


def weight_gradient(d_out: Tensor, x: Tensor, *, with_bias: bool) -> tuple[Tensor, Tensor | None]:
    """d_out (n, F) transposed times x (n, D), both bfloat16 -> (F, D), and the sums of d_out (F), float32."""
    outputs, inputs = d_out.shape[1], x.shape[1]
    d_weight = x.new_empty(outputs, inputs, dtype=torch.float32)
    d_bias = x.new_empty(outputs, dtype=torch.float32) if with_bias else None
    job = WeightGradientJob(rows=len(x), inputs=inputs, outputs=outputs)
    job.x, job.x_row = strided(x, torch.bfloat16, len(x), inputs)
    job.d_out, job.d_out_row = strided(d_out, torch.bfloat16, len(x), outputs)
    job.d_weight, job.d_bias = (
        pointer(d_weight, torch.float32, outputs, inputs),
        pointer(d_bias, torch.float32, outputs),
    )
    run(job)
    return d_weight, d_bias
