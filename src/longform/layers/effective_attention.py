"""The attention weights of a layer on a text, and the n x n map that they imply, for looking at it.

context = P (F V) = (P F) V, so a layer with weights P (n x k) acts like full attention with the map P F: it says which
token draws on which. Here, and only here, something with n² elements is made.

Axes: B batch, n tokens, S slots, D hidden, h heads, d head dimension, g = 1 (heads share F) or h, w window.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.errors import InputError
from longform.functional.dense import Rows, select_rows
from longform.functional.masks import checked_mask
from longform.functional.slots import Slots, make_slots, rest_mask
from longform.layers.attention import LinformerAttention
from longform.layers.local_attention import LocalAttention
from longform.layers.self_attention import NOTHING_SHARED, Shared
from longform.layers.sequence_projection import (
    DenseProjection,
    MeanProjection,
    PlacedMeanProjection,
    SequenceProjection,
    WeightedMeanProjection,
)


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
    without a window. ``shared_projection``, ``distance_bias``, ``rotation``: what ``layer`` takes. Memory O(n²): for
    looking.
    Raises InputError for max (no linear map) and convolution (one map a channel), for selected slots, whose weights
    are sums over their tokens, and for what the layer refuses.
    """
    hidden, mask = layer.prepare(hidden_states, attention_mask)
    hidden = layer.convolve(hidden, mask)
    _, weights = layer(hidden_states, mask, shared=shared, output_attentions=True)
    return EffectiveAttention(weights, implied_map(layer, weights, hidden, mask, shared_projection=shared.projection))


def implied_map(
    layer: LinformerAttention | LocalAttention,
    weights: Tensor,
    hidden: Tensor,
    mask: Tensor | None = None,
    *,
    shared_projection: SequenceProjection | None = None,
) -> Tensor:
    """The map (B, h, n, n) behind the ``weights`` that ``layer`` returned for ``mask`` (B, n) or None.

    ``hidden`` (B, n, D): the layer's input prepared and convolved.
    """
    if isinstance(layer, LocalAttention):
        return near_map(weights, window=layer.reach)
    if layer.covers_all:
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
    projections = list(layer.groups) if shared_projection is None else [shared_projection]
    parts = []
    for heads, projection in zip(layer.head_groups, projections, strict=True):
        assert isinstance(projection, SequenceProjection)
        rows = _value_rows(projection, mask, weights, hidden, layer.sinks)
        rows = pad(rows, (0, 0, width - rows.shape[2], 0))  # weights of heads with fewer slots begin with zeros too
        parts.append(rows.expand(batch, len(heads), -1, -1))
    order = torch.tensor([head for group in layer.head_groups for head in group], device=weights.device)
    return effective_map(weights, torch.cat(parts, dim=1)[:, order.argsort()], window=layer.window)


def _value_rows(
    projection: SequenceProjection, mask: Tensor | None, weights: Tensor, hidden: Tensor, sinks: int
) -> Tensor:
    if isinstance(projection, DenseProjection):
        return dense_value_rows(
            select_rows(projection.matrices()[-1], mask, length=weights.shape[2], rescale=projection.rescale), mask
        )
    if isinstance(projection, PlacedMeanProjection):
        runs = _rows_of_means(projection.content, mask, weights, hidden, sinks)
        places = _value_rows(projection.places, mask, weights, hidden, sinks)
        return runs + projection.place_share[1] * places[:, :, : runs.shape[2]]
    if isinstance(projection, MeanProjection | WeightedMeanProjection):
        return _rows_of_means(projection, mask, weights, hidden, sinks)
    raise InputError(
        f"{type(projection).__name__} has no n x n map: a maximum is not linear, and a convolution has another map for "
        "each channel; the weights (output_attentions=True) can still be looked at"
    )


def _rows_of_means(
    projection: MeanProjection | WeightedMeanProjection,
    mask: Tensor | None,
    weights: Tensor,
    hidden: Tensor,
    sinks: int,
) -> Tensor:
    """A row for each of the ``sinks`` first tokens, then those of the means of the rest: (B, g, s + S, n)."""
    batch, _, length, _ = weights.shape
    device, dtype = weights.device, weights.dtype
    rest = rest_mask(mask, batch=batch, length=length, sinks=sinks, device=device) if sinks else mask
    slots = make_slots(rest, batch=batch, length=length, device=device, sizes=projection.sizes, slots=projection.slots)
    shares = projection.weights_of(hidden, slots, rest) if isinstance(projection, WeightedMeanProjection) else None
    if shares is not None:
        shares = shares.chunk(2, dim=2)[1]
    means = mean_value_rows(slots, rest, length=length, dtype=dtype, weights=shares)
    leading = torch.eye(length, dtype=dtype, device=device)[:sinks].expand(batch, means.shape[1], -1, -1)
    if mask is not None:
        leading = torch.where(mask[:, None, None], leading, 0.0)
    return torch.cat([leading, means], dim=2)


def dense_value_rows(rows: Rows, mask: Tensor | None) -> Tensor:
    """F' as a layer uses it: rows (g, k, n) rescaled, zero on padding; ``mask`` bool (B, n) -> (B or 1, g, k, n)."""
    matrix = rows.matrix[None]
    if rows.scale is not None:
        matrix = matrix * rows.scale[..., None]
    return matrix if mask is None else torch.where(mask[:, None, None], matrix, 0.0)


def mean_value_rows(
    slots: Slots, mask: Tensor | None, *, length: int, dtype: torch.dtype, weights: Tensor | None = None
) -> Tensor:
    """Means as a matrix, of the valid tokens of each slot; ``mask`` bool (B, n) -> (B, g, S, n).

    ``weights`` (B, n, h) of tokens in their slots, or None for 1 / count.
    """
    slot_count = slots.count.shape[1]
    positions = torch.arange(length, device=slots.count.device)
    home = (positions // slots.size[:, None]).clamp(max=slot_count - 1)
    inside = home[:, None] == torch.arange(slot_count, device=home.device)[:, None]
    if mask is not None:
        inside = inside & mask[:, None]
    if weights is not None:
        return inside[:, None] * weights.to(dtype).transpose(1, 2)[:, :, None]
    return (inside.to(dtype) / slots.count.clamp(min=1.0).to(dtype)[..., None])[:, None]


def effective_map(weights: Tensor, value_rows: Tensor, *, window: int | None = None) -> Tensor:
    """The map (B, h, n, n) with map @ V = context, for values V (B, h, n, d).

    ``weights``: what attention returns, (B, h, n, S), or with a ``window`` w of tokens (B, h, n, S + 3 w), slots
    first, then the query's block with both neighbours. ``value_rows`` (B or 1, g, S, n): F. Far weight is spread over
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
