"""Window attention of one document in inference on a CPU: a part of its tokens, and the slots of all of them.

A document is as long as its text, so padding costs nothing; a long one may come part by part (layers/streaming.py).

Axes: n tokens of the document, c queries and m keys of the part, S slots, h heads, d head dimension, w block, b blocks,
t tokens of selected slots.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.execution import has_values
from longform.functional.slots import Runs, Slots
from longform.functional.window.selection import Selected, block_sums, select

LARGEST_KEPT = 2**16  # logits of a document


class DocumentPart(NamedTuple):
    """Some queries of a document and the keys that they reach; blocks and positions are those of the document.

    ``query`` (h, c, d): from token ``start``, a block's first, on. ``key``, ``value`` (h, m, d): from the block before
    the queries to the end of the block after, as far as there are such blocks, or of all tokens, as selection asks for;
    the first is of token ``key_start``. ``length``: the document's tokens; ``window``: those of a block.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    length: int
    window: int
    start: int = 0
    key_start: int = 0

    def blocks(self) -> range:
        """Blocks of the queries."""
        return range(self.start // self.window, -(-(self.start + self.query.shape[1]) // self.window))

    def all_blocks(self) -> int:
        """Blocks of the document."""
        return -(-self.length // self.window)

    def queries(self, first: int, end: int) -> slice:
        """Slice of the queries of blocks ``first`` to ``end``."""
        return slice(first * self.window - self.start, min(end * self.window, self.length) - self.start)

    def keys(self, first: int, end: int) -> slice:
        """Slice of the keys of blocks ``first`` to ``end``, as far as there are such blocks."""
        start, stop = self.key_start, min(end * self.window, self.length)
        return slice(max(0, first) * self.window - start, stop - start)


class FarSlots(NamedTuple):
    """The slots of one document: ``key``, ``value`` (h, S, d), ``count`` (S) real, ``size`` tokens a slot.

    The first ones are tokens at ``exact`` long (s,); ``bias`` (h) or None and ``budget`` weigh all, and so does
    ``distance_bias`` (h, 2 r + 1) or None, which the neighbours of a query have too. ``selected`` of them are seen
    token by token, see selection.py.
    """

    key: Tensor
    value: Tensor
    count: Tensor
    size: int
    exact: Tensor
    bias: Tensor | None
    budget: float | None
    distance_bias: Tensor | None = None
    selected: int = 0


class DocumentAttention(ABC):
    """The attention of one document to its neighbours and to ``far``, part after part from its start."""

    def __init__(self, far: FarSlots) -> None:
        self.far = far
        self._shares: list[float] = []
        self._logits: Tensor | None = None  # of all blocks, of a document of few

    def logits(self, part: DocumentPart, first: int, end: int) -> Tensor:
        """``far_logits`` of blocks ``first`` to ``end`` of the document that the part is cut from: (c, S)."""
        if self._logits is None:
            far, blocks = self.far, part.all_blocks()
            self._shares = self._shares or far_shares(far, blocks, part.window)
            if blocks * far.count.shape[0] > LARGEST_KEPT:
                return far_logits(far, self._shares, first, end, part.window)
            self._logits = far_logits(far, self._shares, 0, blocks, part.window)
        return self._logits[first:end]

    def select(self, part: DocumentPart) -> Selected:
        """The choice of each block of the part's queries, of one document."""
        far, blocks = self.far, part.blocks()
        runs = Runs(far.count[None], torch.tensor([far.size]), far.size, far.size, far.exact[None])
        logits = self.logits(part, blocks.start, blocks.stop)[None, None]
        counted = torch.ones(1, part.length, dtype=torch.bool)
        counted[0, far.exact[far.count[: len(far.exact)] > 0]] = False
        return select(
            block_sums(part.query[None], None, part.window), far.key[None], logits, runs, counted, length=part.length,
            budget=far.budget, most=far.selected,
        )  # fmt: skip

    @abstractmethod
    def __call__(self, part: DocumentPart, out: Tensor) -> None:
        """Write the context of the part's queries into ``out`` (c, h, d)."""


def far_slots(
    slots: Slots,
    document: int,
    length: int,
    *,
    bias: Tensor | None,
    budget: float | None,
    distance_bias: Tensor | None = None,
    selected: int = 0,
) -> FarSlots:
    """The slots of one document of ``length`` tokens, from those of the batch, (B, h, S, d)."""
    runs = slots.runs
    assert runs is not None
    size = int(runs.size[document]) if runs.uniform is None else runs.uniform
    exact = runs.count.new_zeros(0, dtype=torch.long) if runs.exact is None else runs.exact[document]
    used = slice(0, min(len(exact) + -(-length // size), slots.key.shape[2]))
    count = runs.count[document, used].to(torch.float64 if slots.key.dtype == torch.float64 else torch.float32)
    if distance_bias is not None:
        distance_bias = distance_bias.to(count.dtype)
    key, value = slots.key[document, :, used], slots.value[document, :, used]
    return FarSlots(key, value, count, size, exact, bias, budget, distance_bias, selected)


def lacks_whole_texts(call: Any, _: bool) -> str | None:
    """The first thing that a WindowCall lacks to be attended document by document, or None; see dispatch.Kernel."""
    if call.wants_gradient:
        return "no gradient to form"
    if call.first_block is not None:
        return "all tokens of the text, not a part of them"
    if call.neighbours is not None:
        return "a text that is read both ways, no grid"
    if call.dropout:
        return "no dropout"
    if not call.query.is_cpu:
        return "tensors on a CPU"
    if not has_values(call.query):
        return "eager execution (no graph is traced, no torch.func transform), tensors with values"
    return "all padding on the right" if call.lengths is None else None


def together(lengths: list[int], length: int) -> list[tuple[slice, int]]:
    """Documents that are attended in one call, and their tokens: all, where none is padded, else each by itself.

    ``length``: tokens of a row of the batch. Empty documents are left out.
    """
    if all(n == length for n in lengths):
        return [(slice(0, len(lengths)), length)]
    return [(slice(b, b + 1), n) for b, n in enumerate(lengths) if n]


def blank_padding(x: Tensor, lengths: list[int]) -> None:
    """Write zeros on the padding of x (B, h, n, d), which is on the right."""
    for b, n in enumerate(lengths):
        x[b, :, n:] = 0.0


def far_logits(far: FarSlots, shares: list[float], first: int, end: int, window: int) -> Tensor:
    """Bias on the logits of slots for the queries of blocks ``first`` to ``end``: (c, S).

    As formula.far_bias: log(count), hidden within reach and where empty, less where the budget is passed. ``shares``:
    ``far_shares`` of all blocks.
    """
    count = far.count
    exact, home = torch.arange(count.shape[0]) < len(far.exact), slot_blocks(far, window)
    blocks = torch.arange(first, end)[:, None]
    seen = ((home - blocks).abs() > 1) & (count > 0)
    share = torch.tensor(shares[first:end], dtype=count.dtype)[:, None]
    return torch.where(seen, count.clamp(min=1.0).log() + torch.where(exact, 0.0, share), -torch.inf)


def slot_blocks(far: FarSlots, window: int) -> Tensor:
    """The block in which each slot begins: long, shape (S)."""
    begins = torch.arange(far.count.shape[0] - len(far.exact)) * far.size
    return torch.cat([far.exact, begins]) // window


def far_shares(far: FarSlots, blocks: int, window: int) -> list[float]:
    """min(0, log(budget / far tokens)) of each block, whose window is a multiple of the slot size."""
    if far.budget is None:
        return [0.0] * blocks
    rest, run = far.count[len(far.exact) :], window // far.size
    tokens = pad(rest, (0, blocks * run - len(rest))).view(blocks, run).sum(dim=1)
    near = pad(tokens, (1, 1)).unfold(0, 3, 1).sum(dim=1)
    return (far.budget / (tokens.sum() - near).clamp(min=1.0)).log().clamp(max=0.0).tolist()
