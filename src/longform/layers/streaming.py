"""Attention for some tokens at a time, where no gradient is wanted: a long text's Q, K, V and output are never whole.

Each is 100 MB at 65,536 tokens of a base encoder in bfloat16. The system maps as much anew for each of them, page by
page: on a virtual machine that took 200 ms, fifty times a copy into memory that is there. The slots come from the
hidden states (a mean commutes with a linear layer), the keys of a window are formed as it moves over the text, and who
asks for the output may write what follows from it into the hidden states, whose tokens up to there are read no more.

Axes: B batch, n tokens, c tokens at a time, D hidden, h heads, d head dimension, S slots.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from longform.functional.window import window_kernel
from longform.functional.window.document import DocumentAttention, Far, Part, far_of
from longform.layers.linear import apply_linear
from longform.layers.row_chunks import CPU_ROWS, OutputPart
from longform.layers.sequence_projection import Memory


class WindowedLayer(NamedTuple):
    """The layers and options of a windowed attention; ``bias`` of shape (h,) or None, of the memory."""

    query: nn.Module
    key: nn.Module
    value: nn.Module
    output: nn.Module
    num_heads: int
    window: int
    sinks: int
    bias: Tensor | None
    budget: float | None


def queries_at_a_time(window: int) -> int:
    """In whole blocks of ``window``."""
    return -(-CPU_ROWS // window) * window


def windowed_parts(
    layer: WindowedLayer, hidden: Tensor, memory: Memory, lengths: list[int], residual: Tensor | None
) -> Iterator[OutputPart]:
    """The output for hidden (B, n, D), plus ``residual`` (B, n, D); ``lengths``: tokens of text in each document."""
    assert memory.slots is not None
    blank = apply_linear(layer.output, hidden.new_zeros(1, 1, hidden.shape[2]))
    for b, n in enumerate(lengths):
        document = slice(b, b + 1)
        far = far_of(
            b, n, memory.key, memory.value, memory.slots,
            sinks=layer.sinks, bias=layer.bias, budget=layer.budget, of_tokens=False,
        )  # fmt: skip
        for tokens, context in _parts(layer, hidden[document, :n], far):
            where = (document, tokens)
            added = None if residual is None else residual[where]
            yield where, apply_linear(layer.output, context.flatten(1)[None], residual=added)
        if n < hidden.shape[1]:
            where = (document, slice(n, None))
            yield where, blank.expand(1, hidden.shape[1] - n, -1) if residual is None else residual[where] + blank


def _parts(layer: WindowedLayer, hidden: Tensor, far: Far) -> Iterator[tuple[slice, Tensor]]:
    """One document, hidden (1, n, D), cut up: which tokens, and their context (c, h, d)."""
    length, window = hidden.shape[1], layer.window
    rows = queries_at_a_time(window)
    keys = values = apply_linear(layer.key, hidden[:, :0])[0]
    attend: DocumentAttention | None = None
    formed = 0  # there are keys and values of the tokens before this one
    for start in range(0, length, rows):
        stop, first = min(start + rows, length), max(0, start - window)
        reach = min(stop + window, length)
        kept = formed - first
        new = hidden[:, formed:reach]
        keys, values = (
            torch.cat([old[len(old) - kept :], apply_linear(side, new)[0]])
            for old, side in ((keys, layer.key), (values, layer.value))
        )
        formed = reach
        query = apply_linear(layer.query, hidden[:, start:stop])[0]
        by_head = [x.unflatten(1, (layer.num_heads, -1)).transpose(0, 1) for x in (query, keys, values)]
        attend = attend or window_kernel(*by_head)(far)
        context = query.new_empty(stop - start, layer.num_heads, by_head[0].shape[2])
        attend(Part(*by_head, length, window, start), context)
        yield slice(start, stop), context
