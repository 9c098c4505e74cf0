"""The attention weights of a layer on a text, and the n x n map that they imply.

Axes: B batch, n tokens, S slots, D hidden, h heads, d head dimension, g = 1 (heads share F) or h.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.errors import InputError
from longform.functional.dense import select_rows
from longform.functional.effective import dense_value_rows, effective_map, mean_value_rows
from longform.functional.masks import checked_mask
from longform.functional.sinks import rest_mask
from longform.functional.slots import make_slots
from longform.layers.attention import LinformerAttention
from longform.layers.sequence_projection import DenseProjection, MeanProjection, SequenceProjection


class EffectiveAttention(NamedTuple):
    """``weights`` as the layer returns them, see LinformerAttention; ``map`` (B, h, n, n), zero on padded columns."""

    weights: Tensor
    map: Tensor


def effective_attention(
    layer: LinformerAttention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    *,
    shared_projection: SequenceProjection | None = None,
) -> EffectiveAttention:
    """What ``layer`` does to hidden_states (B, n, D) under ``attention_mask`` (B, n): map @ V is its context.

    V (B, h, n, d): the layer's values before they are shortened. For linear, random and mean projections, with or
    without a window. Memory O(n²): for looking. Raises InputError for max (no linear map) and convolution (one map a
    channel), and for what the layer itself refuses.
    """
    mask = checked_mask(attention_mask, batch=hidden_states.shape[0], length=hidden_states.shape[1])
    _, weights = layer(hidden_states, mask, shared_projection=shared_projection, output_attentions=True)
    return EffectiveAttention(weights, implied_map(layer, weights, mask, shared_projection=shared_projection))


def implied_map(
    layer: LinformerAttention,
    weights: Tensor,
    mask: Tensor | None = None,
    *,
    shared_projection: SequenceProjection | None = None,
) -> Tensor:
    """The map (B, h, n, n) behind the ``weights`` that ``layer`` returned for ``mask`` (B, n) or None."""
    if layer.covers_all:
        return weights
    batch, _, length, _ = weights.shape
    mask = checked_mask(mask, batch=batch, length=length)
    width = weights.shape[-1] - 3 * (layer.window or 0)
    projections = list(layer.groups) if shared_projection is None else [shared_projection]
    parts = []
    for heads, projection in zip(layer.head_groups, projections, strict=True):
        assert isinstance(projection, SequenceProjection)
        rows = _value_rows(projection, mask, weights, layer.sinks)
        rows = pad(rows, (0, 0, width - rows.shape[2], 0))  # weights of heads with fewer slots begin with zeros too
        parts.append(rows.expand(batch, len(heads), -1, -1))
    order = torch.tensor([head for group in layer.head_groups for head in group], device=weights.device)
    return effective_map(weights, torch.cat(parts, dim=1)[:, order.argsort()], window=layer.window)


def _value_rows(projection: SequenceProjection, mask: Tensor | None, weights: Tensor, sinks: int) -> Tensor:
    if isinstance(projection, DenseProjection):
        return dense_value_rows(select_rows(projection.matrices()[-1], mask, length=weights.shape[2]), mask)
    if isinstance(projection, MeanProjection):
        return _rows_of_means(projection, mask, weights, sinks)
    raise InputError(
        f"{type(projection).__name__} has no n x n map: a maximum is not linear, and a convolution has another map for "
        "each channel; the weights (output_attentions=True) can still be looked at"
    )


def _rows_of_means(projection: MeanProjection, mask: Tensor | None, weights: Tensor, sinks: int) -> Tensor:
    """A row for each of the ``sinks`` first tokens, then those of the means of the rest: (B, 1, s + S, n)."""
    batch, _, length, _ = weights.shape
    device, dtype = weights.device, weights.dtype
    rest = rest_mask(mask, batch=batch, length=length, sinks=sinks, device=device) if sinks else mask
    slots = make_slots(
        rest, batch=batch, length=length, device=device, sizes=projection.sizes, slots=projection.slots
    )  # fmt: skip
    means = mean_value_rows(slots, rest, length=length, dtype=dtype)
    leading = torch.eye(length, dtype=dtype, device=device)[:sinks].expand(batch, 1, -1, -1)
    if mask is not None:
        leading = torch.where(mask[:, None, None], leading, 0.0)
    return torch.cat([leading, means], dim=2)
