"""Cache of causal attention over the tokens that it has read: the next one costs the same however many they are.

A layer keeps the keys and values of two blocks, the hidden states of one run and one slot for each run before them. The
slot of the run that is being read is formed anew with each token; it is seen only when two more blocks have begun.
Padding has a place, as it has in a whole text; in the text of a model it has none, in whichever turn it stands.

Axes: B batch, n tokens, D hidden, h heads, d head dimension, w window, c tokens of a run, s sinks, S slots, r taps.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from longform.errors import InputError
from longform.functional.execution import has_values
from longform.functional.masks import TextFirst, blank_padding, check_tensors, checked_mask, without_holes
from longform.functional.slots import Exact, Slots
from longform.functional.window import windowed_attention
from longform.layers.self_attention import SelfAttention, Shared
from longform.layers.sequence_projection import RunProjection

ROOM = 64  # slots that are added at a time where texts have no longest length


class LayerCache:
    """One layer's part. ``length`` long (B,): places read, and ``after`` when the present piece is; ``key``, ``value``
    (B, 2 w, h, d), place t at t mod 2 w, and ``holds`` bool (B, 2 w), which are text; ``hidden`` (B, c, D) of the
    present run; ``taps`` (B, r - 1, D), the last inputs of a short convolution; ``slot_key``, ``slot_value``
    (B, s + S, h, d), and the tokens in them, ``count`` (B, s + S).
    """

    length: Tensor
    after: Tensor
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


class CausalCache:
    """Cache of a causal encoder's ``layers``. It begins empty, and the first call that gets it fills it.

    ``mask`` bool (B, m): which of the m columns that were read are text; ``counted`` long (B, 1): tokens that have a
    position, where padding tokens have none.
    """

    is_compileable = False
    mask: Tensor
    counted: Tensor

    def __init__(self, layers: int) -> None:
        self.layers = [LayerCache() for _ in range(layers)]

    def read(
        self, mask: Tensor | None, given: Tensor, *, layers: int, most: int | None, from_text: bool = False
    ) -> tuple[Tensor | None, TextFirst | None, Tensor]:
        """Note the next columns ``given`` (B, n, ...), whose ``mask`` is (B, n), or (B, m + n) with all before them.

        ``from_text``: only text has places. ``layers`` and ``most`` columns (None: any number): of the
        encoder. Returns the mask of the n columns, bool or None where nothing is padded; how they are moved, so that
        places follow one another; and these places, long (B, n). Raises InputError for what cannot be the next columns.
        """
        (batch, length), columns, device = given.shape[:2], self.get_seq_length(), given.device
        self._check(batch, length, layers, most)
        _replace(self, partial(_brought, device=device))
        if not columns:
            self.mask = torch.ones(batch, 0, dtype=torch.bool, device=device)
            self.counted = torch.zeros(batch, 1, dtype=torch.long, device=device)
        past = self.mask[:, :columns]
        check_tensors(attention_mask=mask)
        if mask is not None and columns and mask.shape == (batch, columns + length):
            if has_values(mask, past) and not torch.equal(mask[:, :columns].bool(), past):
                raise InputError("attention_mask is not what it was in the tokens that the cache has read: begin anew")
            mask = mask[:, columns:]
        mask = checked_mask(mask, batch=batch, length=length)
        now = torch.ones(batch, length, dtype=torch.bool, device=device) if mask is None else mask
        self.mask = torch.cat([past, now], dim=1)
        counted = self.mask if from_text else torch.ones_like(self.mask)
        before = counted[:, :columns].sum(dim=1, keepdim=True)
        for layer in self.layers:
            layer.after = counted.sum(dim=1)
        order = without_holes(mask) if from_text else None
        return mask, order, before + torch.arange(length, device=device)

    def _check(self, batch: int, length: int, layers: int, most: int | None) -> None:
        columns = self.get_seq_length()
        if layers != len(self.layers):
            raise InputError(f"the cache is of {len(self.layers)} layers, and there are {layers}")
        if columns and batch != len(self.mask):
            raise InputError(f"the input has a batch of {batch}, the cache one of {len(self.mask)}")
        if most is not None and columns + length > most:
            raise InputError(
                f"the cache has read {columns} tokens and gets {length} more, and {most} are the most there can be"
            )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns read, by Hugging Face's name."""
        return self.layers[0].longest if self.layers else 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep the rows ``beam_idx`` (B',), by Hugging Face's name."""
        for part in (self, *self.layers):
            _replace(part, lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Have each row ``repeats`` times, by Hugging Face's name."""
        if self.get_seq_length():
            self.reorder_cache(torch.arange(len(self.mask)).repeat_interleave(repeats))

    batch_select_indices = reorder_cache

    def crop(self, max_length: int) -> None:
        """Nothing: raises InputError unless ``max_length`` columns are all, or where it is negative, none are to go."""
        read = self.get_seq_length()
        if (read + max_length if max_length <= 0 else max_length) < read:
            raise InputError(f"a CausalCache cannot forget the last of {read} tokens: they are in slots with others")

    def numbers(self) -> int:
        """Numbers kept in all, for a measure of its memory."""
        return sum(x.numel() for layer in self.layers for x in vars(layer).values() if isinstance(x, Tensor))


def _replace(part: LayerCache | CausalCache, change: Callable[[Tensor], Tensor]) -> None:
    """Put ``change`` of each tensor of ``part`` in its place."""
    for name, x in vars(part).items():
        if isinstance(x, Tensor):
            setattr(part, name, change(x))


def _brought(x: Tensor, device: torch.device) -> Tensor:
    """``x`` on ``device``, and outside of inference mode no tensor of that, to which nothing may be written there."""
    frozen = x.is_inference() and not torch.is_inference_mode_enabled()
    return x.to(device, copy=True) if frozen or x.device != device else x


class CachedAttention(SelfAttention):
    """Base of attention that can go on from a cache: its window w, or None, sinks s, and how slots weigh beside it."""

    window: int | None
    sinks: int
    memory_budget: float | None
    memory_bias: nn.Parameter | None
    groups: nn.ModuleList

    @abstractmethod
    def shorten_heads(
        self, key: Tensor, value: Tensor, mask: Tensor | None, x: Tensor, shared: Shared, exact: Exact | None
    ) -> Slots:
        """Slots from keys and values (B, h, n, d) of x (B, n, D), and of the ``exact`` tokens."""

    @abstractmethod
    def near_and_far(self, mask: Tensor | None, x: Tensor, shared: Shared) -> dict[str, Any]:
        """Options of ``windowed_attention`` for x (B, n, D)."""


def attend_cached(
    attention: CachedAttention, hidden_states: Tensor, mask: Tensor | None, *, shared: Shared, output_attentions: bool
) -> tuple[Tensor, Tensor | None]:
    """LinformerAttention's steps for hidden_states (B, n, D) that go on from the cache in ``shared``, or fill it:
    (B, n, h d), and weights or None. Raises InputError for weights of tokens that go on.
    """
    if not hidden_states.shape[1]:
        return attention.attend_nothing(hidden_states, hidden_states.shape)
    _replace(shared.cache, partial(_brought, device=hidden_states.device))
    if shared.cache.begun:
        return _attend_next(attention, hidden_states, mask, shared, output_attentions=output_attentions), None
    x, mask = attention.prepare(hidden_states, mask)
    x = attention.convolve(x, mask)
    key, value = attention.keys_and_values(x, mask, shared)
    options: dict[str, Any] = attention.near_and_far(mask, x, shared) | {"dropout": attention.dropout_rate}
    slots = attention.shorten_heads(key, value, mask, x, shared, options["exact"])
    _remember(attention, hidden_states, x, (key, value), slots, mask, shared)
    out, weights = windowed_attention(
        attention.queries(x, shared.rotation),
        key,
        value,
        lambda: slots,
        output_attentions=output_attentions,
        **options,
    )
    return out.transpose(1, 2).flatten(2), weights


def _remember(
    attention: CachedAttention, given: Tensor, hidden: Tensor, heads: tuple[Tensor, Tensor], slots: Slots,
    mask: Tensor | None, shared: Shared,
) -> None:  # fmt: skip
    """Fill the cache in ``shared`` with a text: ``given`` (B, n, D), ``hidden`` after the short convolution, keys and
    values (B, h, n, d) of that, and its slots.
    """
    cache: LayerCache = shared.cache
    _, run, window = _sizes(attention, shared)
    length, device = hidden.shape[1], hidden.device
    key, value = (x.transpose(1, 2) for x in heads)
    assert slots.runs is not None
    cache.length, cache.longest = cache.after, length
    room = attention.sinks + -(-(attention.max_length or length + ROOM * run) // run)
    cache.slot_key, cache.slot_value = (_widened(x.transpose(1, 2), room) for x in (slots.key, slots.value))
    cache.count = _widened(slots.runs.count, room)
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


def _attend_next(
    attention: CachedAttention, given: Tensor, mask: Tensor | None, shared: Shared, *, output_attentions: bool
) -> Tensor:
    """The input of the output projection, (B, n, h d), of n more tokens ``given`` (B, n, D), one after the other."""
    if output_attentions:
        raise InputError(
            "output_attentions: there are no weights of tokens that go on from a cache; leave the cache out"
        )
    attention.check_shape(given, "hidden_states")
    given, out = blank_padding(given, mask), []
    text = torch.ones(given.shape[:2], dtype=torch.bool, device=given.device) if mask is None else mask
    for place in range(given.shape[1]):
        one = slice(place, place + 1)
        turned = None if shared.rotation is None else shared.rotation.at(one)
        out.append(_attend_one(attention, given[:, one], text[:, one], shared._replace(rotation=turned)))
    return torch.cat(out, dim=1)


def _attend_one(attention: CachedAttention, given: Tensor, text: Tensor, shared: Shared) -> Tensor:
    """One token of each row, (B, 1, D) -> (B, 1, h d); ``text`` (B, 1): which are no padding.

    Padding after a row's last place is put there too, and written over by what comes in that place.
    """
    cache: LayerCache = shared.cache
    projection, run, window = _sizes(attention, shared)
    at, sinks = cache.length, attention.sinks
    advances = at < cache.after
    hidden = given
    if attention.convolution is not None:
        read = torch.cat([cache.taps.to(given.dtype), given], dim=1)
        hidden = blank_padding(attention.convolution(read)[:, -1:], text)
        cache.taps = torch.where(advances[:, None, None], read[:, 1:], cache.taps)
    query = attention.queries(hidden, shared.rotation).transpose(1, 2)
    key, value = (x.transpose(1, 2) for x in attention.keys_and_values(hidden, None, shared))
    place, inside = at % (2 * window), at % run
    cache.key, cache.value = _put(cache.key, place, key), _put(cache.value, place, value)
    cache.holds = _put(cache.holds, place, text)
    cache.hidden = _put(cache.hidden, inside, hidden)
    _form_slot(attention, cache, projection, run)
    cache.length, cache.longest = at + advances, cache.longest + 1
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
    seen = torch.cat([far, near], dim=1) | ~text  # padding sees something, so that it is no NaN
    bias = bias.masked_fill(~seen[:, None], float("-inf"))
    keys, values = torch.cat([cache.slot_key, cache.key], dim=1), torch.cat([cache.slot_value, cache.value], dim=1)
    logits = torch.einsum("bohd,bshd->bhs", query * query.shape[-1] ** -0.5, keys) + bias
    return torch.einsum("bhs,bshd->bhd", logits.softmax(dim=-1).to(values.dtype), values).flatten(1)[:, None]


def _form_slot(attention: CachedAttention, cache: LayerCache, projection: RunProjection, run: int) -> None:
    """Put the slot of the run that the last token belongs to, and that of a sink, in their places."""
    at, sinks = cache.length, attention.sinks
    own = _run_of(at[:, None], run)
    counts = (own <= at[:, None]) & (own >= sinks)
    ring = own % cache.key.shape[1]
    key, value, holds = (_at(x, ring) for x in (cache.key, cache.value, cache.holds))
    counts = counts & holds
    slots = projection.of_heads(
        blank_padding(key.flatten(2), counts).view_as(key),
        blank_padding(value.flatten(2), counts).view_as(value),
        counts,
        blank_padding(cache.hidden, counts),
        None,
    )
    assert slots.runs is not None
    if cache.longest // run + sinks >= cache.count.shape[1]:
        room = cache.count.shape[1] + ROOM
        cache.slot_key, cache.slot_value = _widened(cache.slot_key, room), _widened(cache.slot_value, room)
        cache.count = _widened(cache.count, room)
    leads = at < sinks  # a sink has a slot for itself, and is in no run
    place = torch.where(leads, at, sinks + at // run)
    here = (at % cache.key.shape[1])[:, None]
    for name, pooled, tokens in (("slot_key", slots.key, cache.key), ("slot_value", slots.value, cache.value)):
        row = torch.where(leads[:, None, None, None], _at(tokens, here), pooled.transpose(1, 2))
        setattr(cache, name, _put(getattr(cache, name), place, row))
    cache.count = _put(cache.count, place, torch.where(leads[:, None], _at(cache.holds, here), slots.runs.count))


def _sizes(attention: CachedAttention, shared: Shared) -> tuple[RunProjection, int, int]:
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
    """x (B, n, ...), in the dtype of ``row`` (B, 1, ...), with that in ``place`` long (B,): written there where no
    gradient is wanted, of this or of what was there.
    """
    index, x = place.view(-1, 1, *(1,) * (x.dim() - 2)).expand(-1, 1, *x.shape[2:]), x.to(row.dtype)
    wanted = torch.is_grad_enabled() or x.requires_grad
    return x.scatter(1, index, row) if wanted else x.scatter_(1, index, row)


def _widened(x: Tensor, length: int) -> Tensor:
    """x (B, S, ...) with zeros up to ``length``, or as it is."""
    room = length - x.shape[1]
    return torch.cat([x, x.new_zeros(len(x), room, *x.shape[2:])], dim=1) if room > 0 else x
