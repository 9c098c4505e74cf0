"""Heads of several k: each group of heads of one k has its own projection, and the parts are put together.

Axes: B batch, n tokens, S slots, D hidden, h heads, d head dimension.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longform.functional.attention import Weighted
from longform.functional.execution import constant
from longform.functional.slots import Exact, Slots
from longform.functional.window import weighted_window, windowed_attention
from longform.layers.linear import Weights
from longform.layers.sequence_projection import SequenceProjection

Group = tuple[list[int], SequenceProjection]  # heads of one k, and their projection


def equal_lengths(lengths: tuple[int, ...]) -> list[list[int]]:
    """Heads of one k together, in the order of their first ones; ``lengths``: k of each head."""
    return [[head for head, slots in enumerate(lengths) if slots == each] for each in dict.fromkeys(lengths)]


def slots_of_groups(
    groups: Iterable[Group], key: Tensor, value: Tensor, mask: Tensor | None, x: Tensor, exact: Exact | None
) -> Slots:
    """Slots of all heads from keys and values (B, h, n, d) of x (B, n, D), and ``exact`` tokens; those of fewer slots
    have zeros in front, which nobody sees.
    """
    parts, order = [], []
    for heads, projection in groups:
        sides = (of_heads(side, heads, 1).transpose(1, 2) for side in (key, value))
        parts.append(projection.from_heads(*sides, mask, x, exact))
        order.append(heads)
    return joined_slots(parts, order)


def joined_slots(parts: list[Slots], head_groups: list[list[int]]) -> Slots:
    """Slots of all heads, from those of ``head_groups``."""
    most = max(slots.key.shape[2] for slots in parts)
    usable = [_usable(slots, len(heads)) for slots, heads in zip(parts, head_groups, strict=True)]
    sides = [slots.key for slots in parts], [slots.value for slots in parts], usable
    return Slots(*(join_heads([in_front(x, most, 2) for x in side], head_groups) for side in sides), None)


def _usable(slots: Slots, heads: int) -> Tensor:
    """Whether each slot is seen, bool (B, h, S)."""
    batch, length = slots.key.shape[0], slots.key.shape[2]
    if slots.usable is None:
        return torch.ones(batch, heads, length, dtype=torch.bool, device=slots.key.device)
    usable = slots.usable if slots.usable.dim() == 3 else slots.usable[:, None]
    return usable.expand(batch, heads, length)


def in_front(x: Tensor, length: int, axis: int) -> Tensor:
    """x (..., n, ...) with zeros (False) in front along ``axis``, up to ``length``: (..., length, ...)."""
    room = length - x.shape[axis]
    if not room:
        return x
    shape = (*x.shape[:axis], room, *x.shape[axis + 1 :])
    return torch.cat([x.new_zeros(shape), x], dim=axis)


def attend_by_groups(
    groups: list[Group], query: Tensor, key: Tensor, value: Tensor, x: Tensor, *, output_attentions: bool,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """``windowed_attention`` of heads with several k, each group by itself: query, key, value (B, h, n, d), x (B, n, D)
    -> (B, h, n, d), and weights or None.
    """
    parts: list[Any] = []
    for heads, projection in groups:
        own = [of_heads(each, heads, 1) for each in (query, key, value)]
        sides = (each.transpose(1, 2) for each in own[1:])
        form_slots = partial(projection.from_heads, *sides, options["mask"], x, options["exact"])
        biases = {name: options[name] for name in ("memory_bias", "distance_bias")}
        of_group: Any = {name: None if bias is None else of_heads(bias, heads, 0) for name, bias in biases.items()}
        attend = weighted_window if output_attentions else windowed_attention
        parts.append(attend(*own, form_slots, **(options | of_group)))
    order = [heads for heads, _ in groups]
    if output_attentions:
        return join_weighted(parts, order)
    return join_heads([out for out, _ in parts], order), None


def of_heads(x: Tensor, heads: list[int], axis: int) -> Tensor:
    """The part of ``x`` (..., h, ...) that is of ``heads``, which ``axis`` counts: ``x`` itself where they are all."""
    return x if len(heads) == x.shape[axis] else x[(slice(None),) * axis + (heads,)]


def join_heads(parts: list[Tensor], head_groups: list[list[int]]) -> Tensor:
    """Tensor (B, h, n, ...) of all heads in their order, from the parts of ``head_groups``."""
    if len(parts) == 1:
        return parts[0]
    order = constant(tuple(head for heads in head_groups for head in heads), parts[0].device).argsort()
    return torch.cat(parts, dim=1)[:, order]


def join_weighted(parts: list[Weighted], head_groups: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Outputs (B, h, n, d) and weights (B, h, n, S) of all heads in their order, from those of ``head_groups``.

    Outputs are made from the weights that are returned, so that these have a gradient.
    """
    widths = [weights.shape[-1] for weights, _ in parts]
    filled = [in_front(weights, max(widths), 3) for weights, _ in parts]
    joined = join_heads(filled, head_groups)
    found = [
        attended(of_heads(joined, heads, 1)[..., max(widths) - width :])
        for heads, width, (_, attended) in zip(head_groups, widths, parts, strict=True)
    ]
    return join_heads(found, head_groups), joined


def repeated_heads(layer: Any, num_heads: int, times: int) -> Weights:
    """Weight and bias of ``layer``, which makes keys or values of ``num_heads`` heads, each of them ``times``."""
    rows = (None if x is None else x.unflatten(0, (num_heads, -1)).repeat_interleave(times, dim=0).flatten(0, 1)
            for x in (layer.weight, layer.bias))  # fmt: skip
    return Weights(*rows)  # ty: ignore[invalid-argument-type]  the weight is there
