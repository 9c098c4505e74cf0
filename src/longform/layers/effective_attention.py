"""The attention weights of a layer on a text, and the n x n map that they imply, for looking at it.

context = P (F V) = (P F) V, so a layer with weights P (n x k) acts like full attention with the map P F: it says which
token draws on which. Here, and only here, something with n² elements is made.

Axes: B batch, n tokens, S slots, D hidden, h heads, d head dimension, w window.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.errors import InputError
from longform.functional.masks import blank_padding, checked_mask
from longform.functional.slots import Exact
from longform.layers.attention import LinformerAttention
from longform.layers.local_attention import LocalAttention
from longform.layers.self_attention import NOTHING_SHARED, Shared
from longform.layers.sequence_projection import SequenceProjection


class EffectiveAttention(NamedTuple):
    """``weights`` as the layer returns them, see LinformerAttention; ``map`` (B, h, n, n), zero on padded columns."""

    weights: Tensor
    map: Tensor


def effective_attention(
    layer: LinformerAttention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    *,
    shared: Shared = NOTHING_SHARED,
) -> EffectiveAttention:
    """Map of ``layer`` on hidden_states (B, n, D) under ``attention_mask`` (B, n): map @ V is its context.

    V (B, h, n, d): the layer's values before they are shortened. For linear and random projections and means, with or
    without a window. ``shared``: what ``layer`` takes. Memory O(n²): for
    looking.
    Raises InputError for max (no linear map), convolution (one map a channel) and latents, for selected slots, whose
    weights are sums over their tokens, and for what the layer refuses.
    """
    hidden, mask = layer.prepare(hidden_states, attention_mask)
    hidden = layer.convolve(hidden, mask)
    _, weights = layer(hidden_states, mask, shared=shared, output_attentions=True)
    return EffectiveAttention(weights, implied_map(layer, weights, hidden, mask, shared))


def implied_map(
    layer: LinformerAttention | LocalAttention,
    weights: Tensor,
    hidden: Tensor,
    mask: Tensor | None = None,
    shared: Shared = NOTHING_SHARED,
) -> Tensor:
    """The map (B, h, n, n) behind the ``weights`` that ``layer`` returned for ``mask`` (B, n) or None.

    ``hidden`` (B, n, D): the layer's input prepared and convolved; ``shared``: what the layer was given.
    """
    if isinstance(layer, LocalAttention):
        return near_map(weights, window=layer.reach)
    if layer.grid is None and layer.reaches_all(weights.shape[2], output_attentions=True):
        return weights
    if layer.causal or layer.grid is not None or layer.selected_slots:
        raise InputError(
            "a map of all tokens is of text that is read both ways, not of causal=True or tile=, and of slots that are "
            f"seen whole, not of selected_slots={layer.selected_slots}; the weights (output_attentions=True) can still "
            "be looked at"
        )
    batch, _, length, _ = weights.shape
    mask = checked_mask(mask, batch=batch, length=length)
    width = weights.shape[-1] - 3 * (layer.window or 0)
    projections: list[Any] = list(layer.groups) if shared.projection is None else [shared.projection]
    exact = _exact_tokens(layer, hidden, mask, shared)
    parts = []
    for heads, projection in zip(layer.head_groups, projections, strict=True):
        rows = value_rows(projection, mask, hidden, len(heads), exact).to(weights.dtype)
        parts.append(pad(rows, (0, 0, width - rows.shape[2], 0)))  # weights of heads with fewer slots begin so too
    order = torch.tensor([head for group in layer.head_groups for head in group], device=weights.device)
    return effective_map(weights, torch.cat(parts, dim=1)[:, order.argsort()], window=layer.window)


def _exact_tokens(layer: LinformerAttention, hidden: Tensor, mask: Tensor | None, shared: Shared) -> Exact | None:
    """Tokens that have a slot for themselves beside others: none in a text each of whose slots is a token."""
    whole = layer.reaches_all(hidden.shape[1], output_attentions=True)
    return None if whole else layer.exact_tokens(mask, hidden, shared)


def value_rows(
    projection: SequenceProjection, mask: Tensor | None, hidden: Tensor, heads: int, exact: Exact | None = None
) -> Tensor:
    """The matrix F' (B, h, S, n) by which ``projection`` shortens the values of ``heads`` under ``mask`` bool (B, n).

    What it makes of unit vectors, a token each, and of zeros, which a bias is left of. ``hidden`` (B, n, D): as
    ``implied_map`` has it; ``exact``: tokens with a slot each in front. Raises InputError for a maximum, a
    convolution and latents.
    """
    if not projection.has_map:
        raise InputError(
            f"{type(projection).__name__} has no n x n map: a maximum is not linear, a convolution has another map for "
            "each channel, and latents make E of the keys; the weights (output_attentions=True) can still be looked at"
        )
    batch, length, _ = hidden.shape
    units = torch.eye(length, length + 1, dtype=hidden.dtype, device=hidden.device).expand(batch, -1, -1)
    units = blank_padding(units, mask)[:, :, None].expand(-1, -1, heads, -1)
    found = projection.from_heads(units, units, mask, hidden, exact).value
    return found[..., :-1] - found[..., -1:]


def effective_map(weights: Tensor, value_rows: Tensor, *, window: int | None = None) -> Tensor:
    """The map (B, h, n, n) with map @ V = context, for values V (B, h, n, d).

    ``weights``: what attention returns, (B, h, n, S), or with a ``window`` w of tokens (B, h, n, S + 3 w), slots
    first, then the query's block with both neighbours. ``value_rows`` (B, h, S, n): F'. Far weight is spread over
    the tokens of its slot, near weight stands at its token. Raises InputError where the widths do not agree.
    """
    slot_count, near = value_rows.shape[-2], 3 * (window or 0)
    if weights.shape[-1] != slot_count + near:
        raise InputError(
            f"attention weights are {weights.shape[-1]} wide, but the value rows give {slot_count} slots and "
            f"window={window} gives {near} near tokens; take both from one layer and one input"
        )
    implied = weights[..., :slot_count] @ value_rows.to(weights.dtype)
    return implied if window is None else implied + near_map(weights[..., slot_count:], window=window)


def near_map(weights: Tensor, *, window: int) -> Tensor:
    """Near weights (B, h, n, 3 w) put into their columns: (B, h, n, n)."""
    length = weights.shape[2]
    own = torch.arange(length, device=weights.device)
    columns = (own // window - 1)[:, None] * window + torch.arange(3 * window, device=weights.device)
    # Positions before the start and past the end have no weight, so where they land does not matter.
    columns = columns.clamp(0, length - 1).expand(weights.shape)
    return weights.new_zeros(*weights.shape[:3], length).scatter_add(3, columns, weights)
