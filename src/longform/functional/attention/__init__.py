"""Linear attention, the paper's equation 7: softmax(Q (E K)ᵀ / sqrt(d)) (F V), over keys and values already shortened.

Axes: B batch, n queries, S keys (slots or tokens), h heads, d head dimension, g = 1 or h.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longform.functional import dispatch
from longform.functional.attention import compiled, formula
from longform.functional.attention.formula import AttentionCall
from longform.functional.dispatch import Kernel
from longform.functional.execution import Execution, cached_in_forward, execution_mode
from longform.functional.second_gradient import Gradients, differentiable_by

Weighted = tuple[Tensor, Callable[[Tensor], Tensor]]  # attention weights, and what makes the context of them


def attend_fused(call: AttentionCall) -> Tensor:
    """The call by torch's fused attention, whose second and forward derivatives are the formula's: (B, h, n, d)."""
    plain = call.bias is None and call.distance_bias is None
    mask, mode = call.usable if plain else call.mask, execution_mode()
    if mode is Execution.TRANSFORMED:
        return formula.attention(call.query, call.key, call.value, mask, call.dropout)
    out = scaled_dot_product_attention(call.query, call.key, call.value, attn_mask=mask, dropout_p=call.dropout)
    if mode is Execution.TRACED or call.dropout or not out.requires_grad:
        return out
    # For gradients of gradients: 0.2 and 1.4 % of a training step, at two small sizes.
    return _Differentiable.apply(out, call.query, call.key, call.value, mask)


def _formula_of_out(out: Tensor, *args: Any) -> Tensor:
    return formula.attention(*args)


class _Differentiable(torch.autograd.Function):
    """``out``, which torch made of query, key, value and mask, and to which gradients pass."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *args: Tensor | None) -> Tensor:
        """Returns ``out`` (B, h, n, d)."""
        ctx.save_for_backward(out, *args)
        ctx.options = ()
        return out.view_as(out)

    @staticmethod
    @differentiable_by(_formula_of_out)
    def backward(ctx: Any, saved: Any, gradient: Tensor) -> Gradients:
        """Gradients of ``out``, and of the others through it."""
        return gradient, None, None, None, None


def _formula(call: AttentionCall) -> Tensor:
    return formula.attention(call.query, call.key, call.value, call.mask, call.dropout)


ATTENTION = dispatch.operation(
    "attention",
    Kernel("compiled", compiled.infer, compiled.lacks, torch.bfloat16),
    Kernel("compiled_training", compiled.train, compiled.lacks_in_training, torch.bfloat16),
    Kernel("sdpa", attend_fused),
    Kernel("formula", _formula),
)


def usable_slots(slot_mask: Tensor) -> Tensor:
    """``slot_mask`` bool (B, k) or (B, g, k), with slot 0 opened in rows that have no valid slot, as (B, g, 1, k).

    A row of only padding then sees one slot of zeros and stays finite.
    """
    slot_mask = slot_mask[:, None] if slot_mask.dim() == 2 else slot_mask
    nothing = ~slot_mask.any(dim=-1, keepdim=True)
    # Not zeros and first[0] = True: that copies from the host, which no graph of CUDA can hold.
    first = torch.arange(slot_mask.shape[-1], device=slot_mask.device) == 0
    return (slot_mask | (nothing & first)).unsqueeze(-2)


def slot_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    slot_mask: Tensor | None = None,
    bias: Tensor | None = None,
    block: int = 0,
    dropout: float = 0.0,
    distance_bias: Tensor | None = None,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q Kᵀ / sqrt(d)) V over shortened keys and values.

    query (B, h, n, d); key, value (B, h, k, d); ``slot_mask`` bool (B, k) or (B, g, k), False hides a slot; ``bias``
    (1, g, ceil(n / block), k) or None: added to the logits, a row for each ``block`` queries, instead of a mask.
    ``distance_bias`` (h, 2 r + 1) or None: added by the distance from query to key, which are tokens then.
    Returns out (B, h, n, d), and the weights (B, h, n, k) with ``output_attentions``, else None. float64, float32,
    bfloat16 or float16.
    """
    usable = None if slot_mask is None else cached_in_forward(usable_slots, slot_mask)
    call = AttentionCall(query, key, value, usable, bias, block, dropout, distance_bias)
    if output_attentions:
        weights, attended = _weighted(call)
        return attended(weights), weights
    return dispatch.run(ATTENTION, call), None


def weighted_slots(
    query: Tensor, key: Tensor, value: Tensor, *, slot_mask: Tensor | None = None, **options: Any
) -> Weighted:
    """The weights (B, h, n, k) of ``slot_attention``, and what makes its out (B, h, n, d) of them."""
    usable = None if slot_mask is None else cached_in_forward(usable_slots, slot_mask)
    return _weighted(AttentionCall(query, key, value, usable, **options))


def _weighted(call: AttentionCall) -> Weighted:
    weights = formula.attention_weights(call.query, call.key, call.mask)
    return weights, partial(formula.attended, value=call.value, dropout=call.dropout)
