"""Attention to another text than the input: queries of the input, slots of the context.

Axes: B batch, n tokens of the input, m of the context, D hidden, h heads, d head dimension, k slots.
"""

from typing import Any

import torch
from torch import Tensor

from longform.errors import ConfigurationError, InputError
from longform.functional.attention import slot_attention
from longform.layers.self_attention import Shared
from longform.layers.sequence_projection import SequenceProjection

Attention = Any  # a LinformerAttention, whose module calls this one


def attend_context(
    attention: Attention,
    hidden_states: Tensor,
    _: Tensor | None = None,
    *,
    context: Tensor,
    context_mask: Tensor | None,
    value: Tensor | None = None,
    projection: SequenceProjection | None = None,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """LinformerAttention's steps for queries of hidden_states (B, n, D) and keys of ``context`` (B, m, .), under its
    mask (B, m), 1 text: (B, n, h d), and weights (B, h, n, k) or None.

    A mask of the input changes nothing. ``value`` (B, m, .): what values are made of, None for the context;
    ``projection``: that of all layers, for sharing "layerwise".
    Raises InputError on other shapes, ConfigurationError where there is a window, which is of one text.
    """
    if attention.window is not None or attention.grid is not None:
        raise ConfigurationError(
            "a context is attended to through its slots only: make the layer with attention_window=None, "
            f"causal=False and tile=None, not attention_window={attention.window}, causal={attention.causal}"
        )
    attention.check_shape(hidden_states, "hidden_states")
    attention.check_shape(context, "context")
    if len(context) != len(hidden_states) or (value is not None and value.shape[:2] != context.shape[:2]):
        other = "hidden_states" if value is None else "hidden_states and value"
        raise InputError(f"context (or key) {tuple(context.shape)} and {other} are of other batches or tokens")
    if not torch.compiler.is_compiling() and context.shape[1] == 0:
        return attention.attend_nothing(hidden_states)
    source, mask = attention.prepare(context, context_mask, name="context")
    source = attention.convolve(source, mask)
    query = attention.queries(hidden_states.to(source.dtype))
    slots = attention.shorten(source, mask, Shared(projection, value=value))
    out, weights = slot_attention(
        query,
        slots.key,
        slots.value,
        slot_mask=slots.usable,
        dropout=attention.dropout_rate,
        output_attentions=output_attentions,
    )
    return out.transpose(1, 2).flatten(2), weights
