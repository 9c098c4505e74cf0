"""Layers run on texts where no gradient is wanted: some tokens at a time, in place, with what follows a product in its
pass.

The encoder decides once (``can_run_in_parts``) and then calls each block's ``in_parts``. That computes what its
``forward`` computes; what differs is the memory. A wide intermediate result is never whole: on a CPU
the part stays in the cache, and its buffers are used again instead of being mapped anew. Of a long text the queries,
keys, values and outputs are never whole either: each is 100 MB at 65,536 tokens of a base encoder in bfloat16, for
which a virtual machine maps pages for 200 ms, fifty times a copy into memory that is there. The slots come from the
hidden states (a mean commutes with a linear layer), the keys of a window are formed as it moves over the text, and the
output of a part takes the place of hidden states that are read no more.

Axes: B batch, n tokens, c tokens at a time, D hidden, h heads, d head dimension, S slots.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from longform.functional.attention import slot_attention
from longform.functional.execution import has_values
from longform.functional.masks import text_lengths
from longform.functional.positions.rotary import Rotation
from longform.functional.slots import Slots
from longform.functional.window import document_attention
from longform.functional.window.document import DocumentAttention, DocumentPart, FarSlots, far_slots
from longform.layers.attention import LinformerAttention
from longform.layers.linear import add_to, are_affine, is_seen_inside
from longform.layers.self_attention import Shared
from longform.units import has

LONG = 4096  # tokens from which on the attention of a text is formed in parts too
OutputPart = tuple[tuple[slice, slice], Tensor]  # documents and tokens; their values (b, c, D)
# Tokens at a time, in all documents together. AMX is the faster the more rows it multiplies: a base encoder on two such
# cores in bfloat16 took 1.1 s for 8,192 tokens instead of 1.3, float32 1.22 s for 2,048 instead of 1.27.
CPU_ROWS, DEVICE_ROWS = 2048 if has("amx") else 1024, 65536


def is_long(x: Tensor) -> bool:
    """Whether ``x`` (B, n, ...) is so long that no layer's whole result should be in memory, on a CPU."""
    return x.shape[1] >= LONG and x.device.type == "cpu"


def can_run_in_parts(module: nn.Module, x: Tensor) -> bool:
    """Whether ``x`` (B, n, ...) may pass through ``module`` in parts: no gradient, no traced graph, no hook on
    any module in it, and none in training mode.
    """
    if torch.is_grad_enabled() or not has_values(x):
        return False
    return not is_seen_inside(module)


def rows_of_each(batch: int) -> int:
    """Tokens at a time of each of ``batch`` documents on a CPU, at least 1."""
    return max(1, CPU_ROWS // batch)


def assembled(parts: Iterable[OutputPart], size: tuple[int, ...], out: Tensor | None = None) -> Tensor:
    """The whole (B, n, D), ``size`` (B, n), from all its parts; in the memory of ``out`` if it has their dtype."""
    for where, part in parts:
        if out is None or out.dtype != part.dtype:
            out = part.new_empty(*size, part.shape[-1])
        out[where] = part
    assert out is not None
    return out


def in_chunks(function: Callable[[Tensor, Tensor | None], Tensor], x: Tensor, residual: Tensor | None = None) -> Tensor:
    """function(x, residual) for some tokens at a time, which are (1, c, D) there; all else here is (B, n, D)."""
    rows = CPU_ROWS if x.device.type == "cpu" else DEVICE_ROWS
    flat, shape = x.reshape(1, -1, x.shape[-1]), x.shape
    other = None if residual is None else residual.reshape(flat.shape)
    length = flat.shape[1]
    if length <= rows:
        return function(flat, other).view(shape)
    tokens = (slice(start, start + rows) for start in range(0, length, rows))
    parts = (((slice(None), t), function(flat[:, t], None if other is None else other[:, t])) for t in tokens)
    return assembled(parts, (1, length)).view(shape)


def attention_in_parts(
    attention: nn.Module, hidden: Tensor, mask: Tensor | None, shared: Shared, residual: Tensor
) -> Iterator[OutputPart] | None:
    """``residual`` (B, n, D) plus what ``attention`` gives for hidden (B, n, D); None where it can only be had whole.

    Each part comes with the documents and tokens that it is of; when the next one is asked for, these tokens of
    ``hidden`` and ``residual`` may have been overwritten. Texts of 4,096 tokens and more, on a CPU without gradients;
    with a window where padding is on the right and the slots are means of the hidden states.
    """
    if not is_long(hidden) or not isinstance(attention, LinformerAttention) or not attention.streams(hidden.shape[1]):
        return None
    if shared.distance_bias is not None:
        attention.check_shared(shared, hidden)
    hidden, mask = attention.prepare(hidden, mask)
    if attention.window is None:
        hidden = attention.convolve(hidden, mask)
        return _slots_only(attention, hidden, attention.shorten(hidden, mask, shared), shared, residual)
    lengths = text_lengths(mask, batch=hidden.shape[0], length=hidden.shape[1])
    means = are_affine(attention.key, attention.value) and attention.groups[0].pools_hidden
    if lengths is None or not means:  # slots that cost more than a mean of hidden states are formed of whole keys
        return None
    hidden = attention.convolve(hidden, mask)
    return _windowed(attention, hidden, attention.shorten(hidden, mask, shared), lengths, shared, residual)


def _slots_only(
    attention: LinformerAttention, hidden: Tensor, slots: Slots, shared: Shared, residual: Tensor
) -> Iterator[OutputPart]:
    rows = rows_of_each(hidden.shape[0])
    for start in range(0, hidden.shape[1], rows):
        where = (slice(None), slice(start, start + rows))
        turned = None if shared.rotation is None else shared.rotation.at(where[1])
        query = attention.queries(hidden[where], turned)
        out, _ = slot_attention(query, slots.key, slots.value, slot_mask=slots.usable)
        yield where, add_to(residual[where], attention.output, out.transpose(1, 2).flatten(2))


def _windowed(
    attention: LinformerAttention,
    hidden: Tensor,
    slots: Slots,
    lengths: list[int],
    shared: Shared,
    residual: Tensor,
) -> Iterator[OutputPart]:
    """The output for hidden (B, n, D), plus ``residual``; ``lengths``: tokens of text in each document."""
    blank = attention.output(hidden.new_zeros(1, 1, attention.num_heads * attention.head_dim))
    options: Any = {"bias": attention.memory_bias, "budget": attention.memory_budget}
    options |= {"distance_bias": shared.distance_bias, "selected": attention.selected_slots}
    for b, n in enumerate(lengths):
        document, far = slice(b, b + 1), far_slots(slots, b, n, **options)
        turned = None if shared.rotation is None else shared.rotation.of(b)
        for tokens, context in _contexts(attention, hidden[document, :n], far, turned):
            where = (document, tokens)
            yield where, add_to(residual[where], attention.output, context.flatten(1)[None])
        if n < hidden.shape[1]:
            where = (document, slice(n, None))
            yield where, residual[where] + blank


def _with_more(
    attention: LinformerAttention, keys: Tensor, values: Tensor, hidden: Tensor, rotation: Rotation | None
) -> tuple[Tensor, Tensor]:
    """``keys`` and ``values`` (m, h, d) of some tokens, and behind them those of hidden (1, c, D)."""
    more = [x[0].transpose(0, 1) for x in attention.keys_and_values(hidden, None, Shared(rotation=rotation))]
    if len(keys):
        more = [torch.cat(both) for both in zip((keys, values), more, strict=True)]
    return more[0], more[1]


def queries_at_a_time(window: int) -> int:
    """In whole blocks of ``window``."""
    return -(-CPU_ROWS // window) * window


def _contexts(
    attention: LinformerAttention, hidden: Tensor, far: FarSlots, rotation: Rotation | None
) -> Iterator[tuple[slice, Tensor]]:
    """One document, hidden (1, n, D), cut up: which tokens, and their context (c, h, d).

    Keys and values are formed as far as the queries reach, with selection all at once.
    """
    length, window, whole = hidden.shape[1], attention.window, attention.selected_slots > 0
    assert window is not None
    rows = queries_at_a_time(window)
    keys, values = (x[0].transpose(0, 1) for x in attention.keys_and_values(hidden[:, :0], None))
    attend: DocumentAttention | None = None
    formed = 0  # there are keys and values of the tokens before this one
    for start in range(0, length, rows):
        stop, first = min(start + rows, length), 0 if whole else max(0, start - window)
        reach = length if whole else min(stop + window, length)
        kept, own, new = formed - first, slice(start, stop), slice(formed, reach)
        turned, turned_new = (None if rotation is None else rotation.at(tokens) for tokens in (own, new))
        keys, values = (old[len(old) - kept :] for old in (keys, values))
        if formed < reach:
            keys, values = _with_more(attention, keys, values, hidden[:, new], turned_new)
        formed = reach
        query = attention.queries(hidden[:, own], turned)[0]
        by_head = query, keys.transpose(0, 1), values.transpose(0, 1)
        attend = attend or document_attention(*by_head, far.distance_bias)(far)
        context = query.new_empty(stop - start, attention.num_heads, query.shape[2])
        attend(DocumentPart(*by_head, length, window, start, first), context)
        yield own, context
