"""The memory of an attention layer: slots formed from hidden states or from keys and values, sinks in front.

Axes: B batch, n tokens, S slots, s sinks, D hidden, h heads, d head dimension, g groups of heads.
"""

from typing import Any

import torch
from torch import Tensor, nn

from longform.functional.attention import Weighted
from longform.functional.one_pass import constant, once_a_pass
from longform.functional.slots import Memory, Slots, first_tokens, with_sink_slots
from longform.layers.sequence_projection import SequenceProjection, Side, Weights


def by_head(x: Tensor, heads: int) -> Tensor:
    """x (B, n, h d) -> (B, n, h, d)."""
    return x.unflatten(2, (heads, -1))


def of_heads(x: Tensor, heads: list[int], axis: int) -> Tensor:
    """The part of ``x`` (..., h, ...) that is of ``heads``, which ``axis`` counts: ``x`` itself where they are all."""
    return x if len(heads) == x.shape[axis] else x[(slice(None),) * axis + (heads,)]


def join_heads(parts: list[Tensor], groups: list[list[int]]) -> Tensor:
    """Tensor (B, h, n, ...) of all heads in their order, from the parts of ``groups`` of heads."""
    if len(parts) == 1:
        return parts[0]
    order = constant(tuple(head for group in groups for head in group), parts[0].device).argsort()
    return torch.cat(parts, dim=1)[:, order]


def join_weighted(parts: list[Weighted], groups: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Contexts (B, h, n, d) and weights (B, h, n, S) of all heads in their order, from those of ``groups`` of heads.

    The weights of heads with fewer slots are filled up with zeros in front. Contexts are made from the weights that
    are returned, so that these have a gradient.
    """
    widths = [weights.shape[-1] for weights, _ in parts]
    filled = [nn.functional.pad(weights, (max(widths) - weights.shape[-1], 0)) for weights, _ in parts]
    joined = join_heads(filled, groups)
    contexts = [
        attended(of_heads(joined, heads, 1)[..., max(widths) - width :])
        for heads, width, (_, attended) in zip(groups, widths, parts, strict=True)
    ]
    return join_heads(contexts, groups), joined


def weights_of_heads(layer: nn.Module, heads: list[int], num_heads: int) -> Weights:
    """The rows of ``layer``, of ``num_heads``, that give keys or values of ``heads``."""
    given: Any = layer.weight, layer.bias
    rows = (None if x is None else x.unflatten(0, (num_heads, -1))[heads].flatten(0, 1) for x in given)
    return Weights(*rows)  # ty: ignore[invalid-argument-type]  the weight is there


def memory_of_hidden(
    hidden: Tensor,
    mask: Tensor | None,
    projection: SequenceProjection,
    key: Side,
    value: Side,
    heads: int,
    sinks: int,
) -> Memory:
    """Slots from hidden states (B, n, D), padding blanked, by the layers ``key`` and ``value`` of so many heads."""
    memory = projection.from_hidden(hidden, mask, key, value, heads, sinks=sinks)
    if not sinks:
        return memory
    if projection.puts_sinks_first:
        return counted(memory, mask, hidden.shape[1], sinks)
    leading = (by_head(side(first_tokens(hidden, sinks)), heads) for side in (key, value))
    return with_sinks(memory, *leading, mask, hidden.shape[1], sinks)


def memory_of_heads(
    key: Tensor, value: Tensor, mask: Tensor | None, projection: SequenceProjection, sinks: int, hidden: Tensor
) -> Memory:
    """Slots from keys and values (B, n, h, d) of every token, and the ``hidden`` states (B, n, D) of these."""
    memory = projection.from_heads(key, value, mask, hidden, sinks=sinks)
    if not sinks:
        return memory
    return with_sinks(memory, *(first_tokens(x, sinks) for x in (key, value)), mask, key.shape[1], sinks)


def with_sinks(memory: Memory, key: Tensor, value: Tensor, mask: Tensor | None, length: int, sinks: int) -> Memory:
    """Keys and values (B, s, h, d) of the sinks in front of the slots."""
    keys = torch.cat([key.transpose(1, 2), memory.key], dim=2)
    values = torch.cat([value.transpose(1, 2), memory.value], dim=2)
    return counted(memory._replace(key=keys, value=values), mask, length, sinks)


def counted(memory: Memory, mask: Tensor | None, length: int, sinks: int) -> Memory:
    """A memory whose keys and values (B, h, S, d) have ``sinks`` in front, with slots that say so."""
    assert memory.slots is not None
    slots = once_a_pass(with_sink_slots, memory.slots, mask, length=length, sinks=sinks)
    usable = None if _all_hold_text(slots, mask, length, sinks) else (slots.count > 0)[:, None]
    return memory._replace(usable=usable, slots=slots)


def _all_hold_text(slots: Slots, mask: Tensor | None, length: int, sinks: int) -> bool:
    """Whether each slot is known to hold a token that is no sink; FlashAttention takes no mask."""
    known = mask is None and slots.uniform is not None and not torch.compiler.is_compiling()
    return known and sinks < min(length, slots.uniform)
