"""A short text that has no more tokens than slots: each slot is a token, so it is full attention with a bias.

What a block does not see in its window it sees in the slots, which hold the same keys and values; only their logits
differ, by the bias of slots (memory_bias) and their budget. No slot is formed.

Axes: n tokens of one text, h heads, d head dimension, w block, b blocks, g = 1 or h.
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
    selects = call.selected and token_bias(call, call.query.shape[2]) is not None
    return "no selected slots, or slots that weigh what tokens do" if selects else None


def attend(call: WindowCall) -> Tensor:
    """Each text by itself, without gradients: (B, h, n, d), zeros on padding."""
    assert call.lengths is not None
    parts = together(call.lengths, call.query.shape[2])
    if parts == [(slice(0, len(call.lengths)), call.query.shape[2])]:
        return _attend(call, *parts[0])
    out = torch.empty_like(call.query)
    blank_padding(out, call.lengths)
    for texts, length in parts:
        out[texts, :, :length] = _attend(call, texts, length)
    return out


def _attend(call: WindowCall, texts: slice, length: int) -> Tensor:
    bias = token_bias(call, length)
    some = (x[texts, :, :length] for x in (call.query, call.key, call.value))
    return slot_attention(*some, bias=None if bias is None else bias[None], block=call.window)[0]


def token_bias(call: WindowCall, length: int) -> Tensor | None:
    """Bias on the logit of each token, for the queries of each block: (g, b, n), None for nothing."""
    blocks = torch.arange(-(-length // call.window))
    nothing = call.key[0, :, :0]
    count = torch.ones(length, dtype=call.wide)
    count[: call.sinks] = 0.0  # sinks are outside of the budget
    far = FarSlots(nothing, nothing, count, 1, 0, None, call.memory_budget)
    shares = torch.tensor(far_shares(far, len(blocks), call.window), dtype=call.wide)
    if not shares.any() and (call.memory_bias is None or not call.memory_bias.any()):
        return None
    weight = torch.where(torch.arange(length) < call.sinks, 0.0, shares[:, None])[None]
    if call.memory_bias is not None:
        weight = weight + call.memory_bias.to(call.wide)[:, None, None]
    home = torch.arange(length) // call.window
    return torch.where((blocks[:, None] - home).abs() <= 1, 0.0, weight)
