"""Gradients of gradients through kernels with a hand-written backward pass: those are of the operation's formula.

A gradient penalty, a Hessian-vector product or an inner step of training that is trained through asks for them by
``create_graph=True``, and autograd enables gradients in the backward pass then and only then.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from longform.functional.execution import Execution, execution_mode

Gradients = tuple[Tensor | None, ...]
Backward = Callable[..., Gradients]
Formula = Callable[..., Tensor | tuple[Tensor, ...]]


def differentiable_by(formula: Formula) -> Callable[[Backward], Backward]:
    """Decorator of the ``backward`` of an autograd Function; where it is itself differentiated, ``formula`` serves.

    ``forward`` takes tensors of any shape or None, which ``ctx`` saves before others, and behind them ``ctx.options``;
    ``formula`` takes both, half precision as float32, and returns the same as ``forward``. ``backward`` takes ctx, the
    saved tensors and gradients of outputs, and leaves ``ctx.saved_tensors`` alone: checkpointing hands each out once.
    """

    def decorated(backward: Backward) -> Backward:
        @wraps(backward)
        def either(ctx: Any, *slopes: Tensor | None) -> Gradients:
            saved = ctx.saved_tensors
            if torch.compiler.is_compiling():  # there are no gradients of gradients in its graphs
                return backward(ctx, saved, *slopes)
            # Without storage: many gradients at once, by torch.vmap or is_grads_batched.
            batched = not all(slope is None or torch._C._has_storage(slope) for slope in slopes)
            if torch.is_grad_enabled() or batched or execution_mode() is Execution.TRANSFORMED:
                return _by_formula(formula, ctx, saved, slopes)
            return backward(ctx, saved, *slopes)

        return either

    return decorated


def _by_formula(formula: Formula, ctx: Any, saved: Sequence[Any], slopes: Gradients) -> Gradients:
    needed, again = ctx.needs_input_grad, torch.is_grad_enabled()
    given = saved[: len(needed) - len(ctx.options)]
    device = next(x.device.type for x in given if x is not None)
    with torch.enable_grad(), torch.autocast(device, enabled=False):
        # Views: one input may be made of another, as slots are of keys, and its gradient must not reach that one here.
        inputs = [None if x is None else x.view_as(x) for x in given]
        found = formula(*map(_wide, inputs), *ctx.options)
        outs = [found] if isinstance(found, Tensor) else list(found)
        wanted = [x for x, is_needed in zip(inputs, needed, strict=False) if is_needed and x is not None]
        gradients = iter(
            torch.autograd.grad(outs, wanted, _of_outs(outs, slopes), create_graph=again, allow_unused=True)
        )
    return tuple(next(gradients) if is_needed else None for is_needed in needed)


def _of_outs(outs: Sequence[Tensor], slopes: Gradients) -> list[Tensor]:
    """Gradients of outputs of any shapes, zeros where there is none."""
    return [torch.zeros_like(x) if d is None else d.to(x.dtype) for x, d in zip(outs, slopes, strict=True)]


def _wide(x: Tensor | None) -> Tensor | None:
    return x.float() if x is not None and x.dtype in (torch.bfloat16, torch.float16) else x
