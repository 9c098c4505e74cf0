"""Attention whose heads have several k: each group of heads of one k attends by itself, and the parts are put together.

Axes: B batch, n tokens, S slots, D hidden, h heads, d head dimension.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.attention import Weighted, slot_attention, weighted_slots
from longform.functional.execution import constant
from longform.functional.slots import Slots
from longform.functional.window import weighted_window, windowed_attention
from longform.layers.linear import Weights

Attention = Any  # a LinformerAttention, whose module calls this one
Shared = Any  # what a model hands to its layers


def equal_lengths(lengths: tuple[int, ...]) -> list[list[int]]:
    """Heads of one k together, in the order of their first ones; ``lengths``: k of each head."""
    return [[head for head, slots in enumerate(lengths) if slots == each] for each in dict.fromkeys(lengths)]


def attend_by_groups(
    attention: Attention, hidden_states: Tensor, mask: Tensor | None, *, shared: Shared, output_attentions: bool
) -> tuple[Tensor, Tensor | None]:
    """LinformerAttention's steps for hidden_states (B, n, D) of heads with several k: (B, n, h d), and weights or None.

    Weights of heads with fewer slots are filled up with zeros in front.
    """
    x, mask = attention.prepare(hidden_states, mask)
    x = attention.convolve(x, mask)
    query = attention.queries_of(hidden_states, x, mask, shared)
    options: Any = {"dropout": attention.dropout_rate}
    key, value = attention.keys_and_values(x, mask, shared)
    if attention.reaches_all(x.shape[1], output_attentions=output_attentions):
        usable = None if mask is None else mask[:, None]
        options |= {"distance_bias": shared.distance_bias, "output_attentions": output_attentions}
        out, weights = slot_attention(query, key, value, slot_mask=usable, **options)
        return out.transpose(1, 2).flatten(2), weights
    exact = attention.exact_tokens(mask, x, shared)
    if attention.window is not None:
        options |= attention.near_and_far(mask, x, shared)
        options |= {"memory_bias": attention.memory_bias, "distance_bias": shared.distance_bias}
    parts: list[Any] = []
    for heads, projection in zip(attention.head_groups, attention.groups, strict=True):
        own = [of_heads(each, heads, 1) for each in (query, key, value)]
        form_slots = partial(projection.from_heads, *(each.transpose(1, 2) for each in own[1:]), mask, x, exact)
        parts.append(_attend_group(own, form_slots, heads, options, weighted=output_attentions))
    if output_attentions:
        out, weights = join_weighted(parts, attention.head_groups)
    else:
        out, weights = join_heads([out for out, _ in parts], attention.head_groups), None
    return out.transpose(1, 2).flatten(2), weights


def _attend_group(
    own: list[Tensor], form_slots: Callable[[], Slots], heads: list[int], options: dict[str, Any], *, weighted: bool
) -> Any:
    """Attention of ``heads`` of one k, with ``own`` query, key and value (B, ., n, d); ``options``: of all heads."""
    if "window" not in options:
        slots, attend = form_slots(), weighted_slots if weighted else slot_attention
        return attend(own[0], slots.key, slots.value, slot_mask=slots.usable, **options)
    attend = weighted_window if weighted else windowed_attention
    of_group: Any = {name: options[name] for name in ("memory_bias", "distance_bias")}
    biases: Any = {name: None if bias is None else of_heads(bias, heads, 0) for name, bias in of_group.items()}
    return attend(*own, form_slots, **(options | biases))


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
    filled = [pad(weights, (max(widths) - weights.shape[-1], 0)) for weights, _ in parts]
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
