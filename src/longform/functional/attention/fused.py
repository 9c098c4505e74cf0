"""Attention by torch's fused call, which has neither second derivatives nor forward ones: those are the formula's.

Axes: B batch, n queries, S keys, h heads, d head dimension, g = 1 or h.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longform.functional.attention import formula
from longform.functional.attention.formula import AttentionCall
from longform.functional.execution import Execution, execution_mode
from longform.functional.second_gradient import Gradients, differentiable_by


def attend(call: AttentionCall) -> Tensor:
    """The call by torch's fused attention: (B, h, n, d)."""
    plain = call.bias is None and call.distance_bias is None
    mask, mode = call.usable if plain else call.mask, execution_mode()
    if mode is Execution.TRANSFORMED:
        return formula.attention(call.query, call.key, call.value, mask, call.dropout)
    out = scaled_dot_product_attention(call.query, call.key, call.value, attn_mask=mask, dropout_p=call.dropout)
    if mode is Execution.TRACED or call.dropout or not out.requires_grad:
        return out
    # For gradients of gradients: 0.2 and 1.4 % of a training step, at two small sizes.
    return _Differentiable.apply(out, call.query, call.key, call.value, mask)


def _formula(out: Tensor, *given: Any) -> Tensor:
    return formula.attention(*given)


class _Differentiable(torch.autograd.Function):
    """``out``, which torch made of query, key, value and mask, and to which gradients pass."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *given: Tensor | None) -> Tensor:
        """Returns ``out`` (B, h, n, d)."""
        ctx.save_for_backward(out, *given)
        ctx.options = ()
        return out.view_as(out)

    @staticmethod
    @differentiable_by(_formula)
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        """Gradients of ``out``, and of the others through it."""
        return gradient, None, None, None, None
