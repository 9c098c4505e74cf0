"""Window and memory for some queries at a time, where no gradient is wanted: a long text's Q, K, V are never whole.

At 65,536 tokens of a base encoder in bfloat16 queries, keys, values, copies of the last two without the sinks, and the
context are 100 MB each, and every layer has them mapped anew: 200,000 page faults, which take 13 of 116 us a token on
one core of a Zen 4. Here, with 80,000 and 2.4 us, slots come from the hidden states (a mean commutes with a linear
layer), and keys are formed as the window moves over the text.

Axes: B batch, n tokens, c queries at a time, D hidden, h heads, d head dimension.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from longform.functional.blockwise_cpu import has_blockwise_kernel
from longform.functional.document import DocumentAttention, Far, Part, far_of
from longform.functional.window import window_kernel
from longform.layers.plain_linear import apply_linear
from longform.layers.row_chunks import LONG, has_hooks, share_of
from longform.layers.sequence_projection import Memory

SHARE, FEWEST, MOST = 1 / 8, 512, 2048  # of a text, and queries, at a time


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


def can_stream(attention: nn.Module, hidden: Tensor) -> bool:
    """Whether hidden (B, n, D) is long enough, on a CPU, without gradients, and nobody looks inside ``attention``."""
    long = hidden.shape[1] >= LONG and not torch.is_grad_enabled()
    return long and has_blockwise_kernel(hidden) and not has_hooks(attention)


def queries_at_a_time(length: int, window: int) -> int:
    """Of a text of ``length`` tokens, in whole blocks of ``window``."""
    return -(-share_of(length, SHARE, FEWEST, MOST) // window) * window


def stream(layer: WindowedLayer, hidden: Tensor, memory: Memory, lengths: list[int]) -> Tensor:
    """Hidden (B, n, D), of which the first ``lengths`` tokens of each document are text, attended -> (B, n, D)."""
    assert memory.slots is not None
    blank = apply_linear(layer.output, hidden.new_zeros(1, 1, hidden.shape[2]))
    out = blank.new_empty(hidden.shape)
    for b, n in enumerate(lengths):
        far = far_of(
            b, n, memory.key, memory.value, memory.slots,
            sinks=layer.sinks, bias=layer.bias, budget=layer.budget, of_tokens=False,
        )  # fmt: skip
        for tokens, context in _parts(layer, hidden[b : b + 1, :n], far):
            out[b, tokens] = apply_linear(layer.output, context.flatten(1)[None])[0]
        out[b, n:] = blank[0]
    return out


def _parts(layer: WindowedLayer, hidden: Tensor, far: Far) -> Iterator[tuple[slice, Tensor]]:
    """One document, hidden (1, n, D), cut up: which tokens, and their context (c, h, d)."""
    length, window = hidden.shape[1], layer.window
    rows = queries_at_a_time(length, window)
    keys = values = _heads(layer, layer.key, hidden[:, :0])
    attend: DocumentAttention | None = None
    formed = 0  # there are keys and values of the tokens before this one
    for start in range(0, length, rows):
        stop, first = min(start + rows, length), max(0, start - window)
        reach = min(stop + window, length)
        kept = formed - first
        new = hidden[:, formed:reach]
        keys, values = (
            torch.cat([old[:, old.shape[1] - kept :], _heads(layer, side, new)], dim=1)
            for old, side in ((keys, layer.key), (values, layer.value))
        )
        formed = reach
        query = _heads(layer, layer.query, hidden[:, start:stop])
        attend = attend or window_kernel(query, keys, values)(far)
        context = query.new_empty(stop - start, layer.num_heads, query.shape[2])
        attend(Part(query, keys, values, length, window, start), context)
        yield slice(start, stop), context


def _heads(layer: WindowedLayer, side: nn.Module, hidden: Tensor) -> Tensor:
    """(1, n, D) -> (h, n, d)."""
    return apply_linear(side, hidden)[0].unflatten(1, (layer.num_heads, -1)).transpose(0, 1)
