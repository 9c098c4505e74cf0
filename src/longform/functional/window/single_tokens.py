"""A short text that has no more tokens than slots: each slot is a token, so it is full attention with a bias.

What a block does not see in its window it sees in the slots, which hold the same keys and values; only their logits
differ, by the bias of slots (memory_bias) and their budget. No slot is formed.

Axes: B texts, n tokens of each, h heads, d head dimension, w block, b blocks, g = 1 or h.
"""

import torch
from torch import Tensor

from longform.functional.attention import slot_attention
from longform.functional.window.call import WindowCall
from longform.functional.window.document import FarSlots, blank_padding, far_shares, lacks_whole_texts, together

SHORT = 512  # tokens of a text whose pairs may all stand in one table


def lacks(call: WindowCall, forced: bool) -> str | None:
    """The first thing that ``call`` lacks for ``attend``, or None; see dispatch.Kernel."""
    if not call.slots_are_tokens:
        return "no more tokens than slots, each slot a token"
    if call.query.shape[2] > SHORT and not forced:
        return f"at most {SHORT} tokens"
    if call.distance_bias is not None:
        return "no bias by distance"
    if missing := lacks_whole_texts(call, forced):
        return missing
    selects = call.selected and any(token_bias(call, *part) is not None for part in _parts(call))
    return "no selected slots, or slots that weigh what tokens do" if selects else None


def attend(call: WindowCall) -> Tensor:
    """Each text by itself, without gradients: (B, h, n, d), zeros on padding."""
    parts = _parts(call)
    if parts == [(slice(0, len(call.query)), call.query.shape[2])]:
        return _attend(call, *parts[0])
    out = torch.empty_like(call.query)
    blank_padding(out, call.lengths or [])
    for texts, length in parts:
        out[texts, :, :length] = _attend(call, texts, length)
    return out


def _parts(call: WindowCall) -> list[tuple[slice, int]]:
    """Texts that are attended in one call, and their tokens; where exact tokens weigh otherwise, one text each."""
    assert call.lengths is not None
    if call.exact is None or call.exact.leading or call.memory_budget is None:
        return together(call.lengths, call.query.shape[2])
    return [(slice(b, b + 1), n) for b, n in enumerate(call.lengths) if n]


def _attend(call: WindowCall, texts: slice, length: int) -> Tensor:
    bias = token_bias(call, texts, length)
    some = (x[texts, :, :length] for x in (call.query, call.key, call.value))
    return slot_attention(*some, bias=None if bias is None else bias[None], block=call.window)[0]


def token_bias(call: WindowCall, texts: slice, length: int) -> Tensor | None:
    """Bias on the logit of each token of ``texts``, for the queries of each block: (g, b, n), None for nothing."""
    blocks = torch.arange(-(-length // call.window))
    nothing = call.key[0, :, :0]
    counted = torch.ones(length, dtype=torch.bool) if call.exact is None else call.exact.rest[texts.start, :length]
    far = FarSlots(nothing, nothing, counted.to(call.wide), 1, torch.arange(0), None, call.memory_budget)
    shares = torch.tensor(far_shares(far, len(blocks), call.window), dtype=call.wide)
    if not shares.any() and (call.memory_bias is None or not call.memory_bias.any()):
        return None
    weight = torch.where(counted, shares[:, None], 0.0)[None]
    if call.memory_bias is not None:
        weight = weight + call.memory_bias.to(call.wide)[:, None, None]
    home = torch.arange(length) // call.window
    return torch.where((blocks[:, None] - home).abs() <= 1, 0.0, weight)
