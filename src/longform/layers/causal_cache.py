"""Cache of causal attention over the tokens that it has read: the next one costs the same however many they are.

A layer keeps the keys and values of two blocks, the hidden states of one run and one slot for each run before them. The
slot of the run that is being read is formed anew with each token; it is seen only when two more blocks have begun.
Rows of a batch may have read different numbers of tokens.

Axes: B batch, n tokens, D hidden, h heads, d head dimension, w window, c tokens of a run, s sinks, S slots, r taps.
"""

from typing import Any

import torch
from torch import Tensor

from longform.errors import InputError
from longform.functional.masks import blank_padding, document_lengths
from longform.layers.memory import memory_of_heads
from longform.layers.sequence_projection import RunProjection

Attention = Any  # a causal LinformerAttention, whose module calls this one
Shared = Any  # what a model hands to its layers, which has a LayerCache
ROOM = 64  # slots that are added at a time where texts have no longest length


class LayerCache:
    """One layer's part. ``length`` long (B,): tokens read; ``key``, ``value`` (B, 2 w, h, d), token t in place
    t mod 2 w, and ``holds`` bool (B, 2 w); ``hidden`` (B, c, D) of the present run; ``taps`` (B, r - 1, D), the last
    inputs of a short convolution; ``slot_key``, ``slot_value`` (B, s + S, h, d), and the tokens in them, ``count``
    (B, s + S).
    """

    length: Tensor
    key: Tensor
    value: Tensor
    holds: Tensor
    hidden: Tensor
    taps: Tensor
    slot_key: Tensor
    slot_value: Tensor
    count: Tensor

    def __init__(self) -> None:
        self.begun, self.longest = False, 0

    def check_room(self, more: int, most: int | None) -> None:
        """Raise InputError where ``more`` tokens are too many for a layer of ``most``."""
        if most is not None and self.longest + more > most:
            raise InputError(
                f"the cache has read {self.longest} tokens and gets {more} more, and {most} are the most there can be"
            )

    def reorder(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` long (B',) of the batch, in that order: what a search by beams asks for."""
        for name, x in vars(self).items():
            if isinstance(x, Tensor):
                setattr(self, name, x.index_select(0, rows.to(x.device)))


class CausalCache:
    """Cache of all ``layers`` of a causal encoder; new and empty, it is filled by the first call that has it."""

    is_compileable = False

    def __init__(self, layers: int) -> None:
        self.layers = [LayerCache() for _ in range(layers)]

    @property
    def length(self) -> Tensor | None:
        """Tokens read, long (B,); None before the first."""
        return self.layers[0].length if self.layers and self.layers[0].begun else None

    def check_room(self, more: int, most: int | None) -> None:
        """Raise InputError where ``more`` tokens are too many for layers of ``most``."""
        for layer in self.layers[:1]:
            layer.check_room(more, most)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The most tokens that a row has read, by Hugging Face's name."""
        return self.layers[0].longest if self.layers else 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep the rows ``beam_idx`` (B',), by Hugging Face's name."""
        for layer in self.layers:
            layer.reorder(beam_idx)

    def numbers(self) -> int:
        """Numbers kept in all, for a measure of its memory."""
        return sum(x.numel() for layer in self.layers for x in vars(layer).values() if isinstance(x, Tensor))


def remember(attention: Attention, given: Tensor, hidden: Tensor, mask: Tensor | None, shared: Shared) -> None:
    """Fill the cache in ``shared`` with a text: ``given`` (B, n, D), and ``hidden`` after the short convolution."""
    cache: LayerCache = shared.cache
    projection, run, window = _sizes(attention, shared)
    batch, length, device = len(hidden), hidden.shape[1], hidden.device
    key, value = attention.keys_and_values(hidden, mask, shared.rotation)
    memory = memory_of_heads(key, value, mask, projection, attention.sinks, hidden)
    assert memory.slots is not None
    cache.length = document_lengths(mask, batch=batch, length=length, device=device)
    cache.longest = length
    slots = attention.sinks + -(-(attention.max_length or length + ROOM * run) // run)
    cache.slot_key, cache.slot_value = (_widened(x.transpose(1, 2), slots) for x in (memory.key, memory.value))
    cache.count = _widened(memory.slots.count, slots)
    last = cache.length[:, None] - 1
    places = torch.arange(2 * window, device=device)
    tokens = last - (last - places) % (2 * window)
    cache.key, cache.value, cache.hidden = (
        _at(x, some) for x, some in ((key, tokens), (value, tokens), (hidden, _run_of(last, run)))
    )
    cache.holds = (tokens >= 0) & (True if mask is None else _at(mask, tokens))
    reach = 0 if attention.convolution is None else attention.convolution.reach
    before = last + torch.arange(1 - reach, 1, device=device)
    cache.taps = _at(blank_padding(given, mask), before) * (before >= 0)[..., None]
    cache.begun = True


def attend_next(attention: Attention, given: Tensor, mask: Tensor | None, shared: Shared) -> Tensor:
    """The input of the output projection, (B, n, h d), of n more tokens ``given`` (B, n, D), one after the other."""
    cache: LayerCache = shared.cache
    attention.check_shape(given, "hidden_states")
    if len(given) != len(cache.length):
        raise InputError(f"hidden_states has a batch of {len(given)}, the cache one of {len(cache.length)}")
    cache.check_room(given.shape[1], attention.max_length)
    out = []
    for place in range(given.shape[1]):
        turned = None if shared.rotation is None else shared.rotation.at(slice(place, place + 1))
        out.append(_attend_one(attention, given[:, place : place + 1], cache, shared._replace(rotation=turned)))
    return torch.cat(out, dim=1)


def _attend_one(attention: Attention, given: Tensor, cache: LayerCache, shared: Shared) -> Tensor:
    """One token of each row, (B, 1, D) -> (B, 1, h d)."""
    projection, run, window = _sizes(attention, shared)
    at, sinks = cache.length, attention.sinks
    hidden = given
    if attention.convolution is not None:
        read = torch.cat([cache.taps, given], dim=1)
        hidden, cache.taps = attention.convolution(read)[:, -1:], read[:, 1:]
    query = attention.queries(hidden, shared.rotation)
    key, value = attention.keys_and_values(hidden, None, shared.rotation)
    place, inside = at % (2 * window), at % run
    cache.key, cache.value = _put(cache.key, place, key), _put(cache.value, place, value)
    cache.holds = _put(cache.holds, place, cache.holds.new_ones(len(at), 1))
    cache.hidden = _put(cache.hidden, inside, hidden)
    _form_slot(attention, cache, projection, run)
    cache.length, cache.longest = at + 1, cache.longest + 1
    slots, ring = torch.arange(cache.count.shape[1], device=at.device), torch.arange(2 * window, device=at.device)
    home = torch.where(slots < sinks, slots, (slots - sinks) * run) // window
    block = (at // window)[:, None]
    far = (home < block - 1) & (cache.count > 0)
    tokens = at[:, None] - (at[:, None] - ring) % (2 * window)
    near = cache.holds & (tokens >= (block - 1).clamp(min=0) * window)
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    count = cache.count.to(wide)
    bias = count.log()
    if attention.memory_budget is not None:
        total = torch.where(far & (slots >= sinks), count, 0.0).sum(dim=1, keepdim=True).clamp(min=1.0)
        bias = bias + torch.where(slots >= sinks, (attention.memory_budget / total).log().clamp(max=0.0), 0.0)
    bias = bias[:, None] + (0.0 if attention.memory_bias is None else attention.memory_bias.to(wide)[:, None])
    bias = torch.cat([bias, bias.new_zeros(len(at), bias.shape[1], 2 * window)], dim=2)
    bias = bias.masked_fill(~torch.cat([far, near], dim=1)[:, None], float("-inf"))
    keys, values = torch.cat([cache.slot_key, cache.key], dim=1), torch.cat([cache.slot_value, cache.value], dim=1)
    logits = torch.einsum("bohd,bshd->bhs", query * query.shape[-1] ** -0.5, keys) + bias
    return torch.einsum("bhs,bshd->bhd", logits.softmax(dim=-1).to(values.dtype), values).flatten(1)[:, None]


def _form_slot(attention: Attention, cache: LayerCache, projection: RunProjection, run: int) -> None:
    """Put the slot of the run that the last token belongs to, and that of a sink, in their places."""
    at, sinks = cache.length, attention.sinks
    own = _run_of(at[:, None], run)
    counts = (own <= at[:, None]) & (own >= sinks)
    ring = own % cache.key.shape[1]
    key, value, holds = (_at(x, ring) for x in (cache.key, cache.value, cache.holds))
    counts = counts & holds
    memory = projection.from_heads(
        blank_padding(key.flatten(2), counts).view_as(key),
        blank_padding(value.flatten(2), counts).view_as(value),
        counts,
        blank_padding(cache.hidden, counts),
    )
    assert memory.slots is not None
    if cache.longest // run + sinks >= cache.count.shape[1]:
        room = cache.count.shape[1] + ROOM
        cache.slot_key, cache.slot_value = _widened(cache.slot_key, room), _widened(cache.slot_value, room)
        cache.count = _widened(cache.count, room)
    leads = at < sinks  # a sink has a slot of its own, and none in a run
    place = torch.where(leads, at, sinks + at // run)
    here = (at % cache.key.shape[1])[:, None]
    for name, pooled, tokens in (("slot_key", memory.key, cache.key), ("slot_value", memory.value, cache.value)):
        row = torch.where(leads[:, None, None, None], _at(tokens, here), pooled.transpose(1, 2))
        setattr(cache, name, _put(getattr(cache, name), place, row))
    cache.count = _put(cache.count, place, torch.where(leads[:, None], 1.0, memory.slots.count))


def _sizes(attention: Attention, shared: Shared) -> tuple[RunProjection, int, int]:
    projection = attention.groups[0]
    assert isinstance(projection, RunProjection)
    assert attention.window is not None
    return projection, projection.sizes[0], attention.window


def _run_of(token: Tensor, run: int) -> Tensor:
    """Tokens of the run that ``token`` long (B, 1) is in: long (B, c)."""
    return token.clamp(min=0) // run * run + torch.arange(run, device=token.device)


def _at(x: Tensor, tokens: Tensor) -> Tensor:
    """x (B, n, ...) at ``tokens`` long (B, m), the nearest where there is none: (B, m, ...)."""
    index = tokens.clamp(0, x.shape[1] - 1).view(*tokens.shape, *(1,) * (x.dim() - 2))
    return x.gather(1, index.expand(*tokens.shape, *x.shape[2:]))


def _put(x: Tensor, place: Tensor, row: Tensor) -> Tensor:
    """x (B, n, ...) with ``row`` (B, 1, ...) in ``place`` long (B,): written there where no gradient is wanted."""
    index = place.view(-1, 1, *(1,) * (x.dim() - 2)).expand(-1, 1, *x.shape[2:])
    return x.scatter(1, index, row.to(x.dtype)) if torch.is_grad_enabled() else x.scatter_(1, index, row.to(x.dtype))


def _widened(x: Tensor, length: int) -> Tensor:
    """x (B, S, ...) with zeros up to ``length``, or as it is."""
    room = length - x.shape[1]
    return torch.cat([x, x.new_zeros(len(x), room, *x.shape[2:])], dim=1) if room > 0 else x
