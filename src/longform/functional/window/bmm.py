"""A document's window and memory in one softmax, by plain products, for bfloat16 on a CPU without AMX.

It serves where compiled.py was not compiled, and what that does not take, such as heads no multiple of 32 wide.

The keys that a block of queries sees, its neighbours and the slots out of their reach, change little from block to
block, and their order does not matter to a softmax: tokens that come into reach are written over those that leave it,
and slots that leave it over those that come into it.

Axes: n tokens of one document, S slots, F keys of a block, h heads, d head dimension, w block, g = 1 or h.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.attention.bmm import attend
from longform.functional.window.document import DocumentAttention, DocumentPart, FarSlots, slot_logits

LARGEST_SHIFT = 2.0**-6
VECTOR_WIDTH = 32  # a softmax over rows of a multiple of so many keys is the faster


class BmmDocument(DocumentAttention):
    """A document by plain products; the window is a multiple of the slot size."""

    def __init__(self, far: FarSlots) -> None:
        super().__init__(far)
        self._keys: MovingKeys | None = None

    def __call__(self, part: DocumentPart, out: Tensor) -> None:
        """Write the context of the part's queries into ``out`` (c, h, d)."""
        far, window = self.far, part.window
        shares = self.shares(part)
        # From the first block that reaches no sink to the last one whose right neighbour is whole.
        begin, end = max(1, -(-far.sinks // window) + 1 if far.sinks else 1), part.length // window - 1
        for block in part.blocks():
            if not begin <= block < end:
                _one_block(part, far, block, shares[block], out)
                continue
            keys = self._keys = self._keys or MovingKeys(part, far, range(block, end))
            keys.move_to(part, block, shares[block])
            rows = part.queries(block, block + 1)
            attend(part.query[:, rows], keys.key.transpose(1, 2), keys.value, keys.bias, out[rows])


def _one_block(part: DocumentPart, far: FarSlots, block: int, share: float, out: Tensor) -> None:
    """A block whose keys are put together for it alone; ``share`` is added to the logits of its slots, not sinks."""
    rows, reach = part.queries(block, block + 1), part.keys(block - 1, block + 2)
    first, past, window = max(0, block - 1), block + 2, part.window
    run, sinks = window // far.size, far.sinks
    seen = (
        slice(0, min(sinks, first * window)), slice(min(sinks, past * window), sinks),
        slice(sinks, sinks + first * run), slice(sinks + past * run, None),
    )  # fmt: skip
    keys, values = (
        torch.cat([x[:, reach], *(y[:, p] for p in seen)], dim=1)
        for x, y in ((part.key, far.key), (part.value, far.value))
    )
    logits = slot_logits(far)
    logits[sinks:] += share
    logits = torch.cat([logits[p] for p in seen])
    bias = rounded_bias(logits, far.bias, near=reach.stop - reach.start, dtype=part.query.dtype)
    attend(part.query[:, rows], keys.transpose(1, 2), values, bias, out[rows])


class MovingKeys:
    """Keys and values (h, F, d) of one of ``blocks`` after the other: 3 w tokens, the sinks, the slots out of reach.

    A block of tokens stands at its number modulo 3; ``place`` says where the slots of a block stand.
    """

    def __init__(self, part: DocumentPart, far: FarSlots, blocks: range) -> None:
        self.far, self.block = far, blocks[0]
        self.run, self.near = part.window // far.size, 3 * part.window
        around = sorted(range(self.block - 1, self.block + 2), key=lambda block: block % 3)
        outside = torch.ones(far.count.shape[0], dtype=torch.bool)
        outside[self._slots_of(self.block - 1).start : self._slots_of(self.block + 1).stop] = False
        self.key, self.value = (
            torch.cat([*(x[:, part.keys(block, block + 1)] for block in around), y[:, outside]], dim=1)
            for x, y in ((part.key, far.key), (part.value, far.value))
        )
        behind = range(self.block + 2, blocks[-1] + 2)
        self.place = {block: self._slots_of(block) for block in range(self.block - 1)}
        self.place |= {block: self._slots_of(block - 3) for block in behind}
        self.place = {b: slice(p.start + self.near, p.stop + self.near) for b, p in self.place.items()}
        self.logits = slot_logits(far)
        self.held, self.share, self.bias = self.logits[outside], None, None
        spare = -self.key.shape[1] % VECTOR_WIDTH
        if 0 < spare <= self.key.shape[1] // VECTOR_WIDTH:  # products over more keys would cost what the softmax saves
            self._add_hidden(spare)

    def _add_hidden(self, keys: int) -> None:
        """Append ``keys`` that no query sees."""
        self.key, self.value = (pad(x, (0, 0, 0, keys)) for x in (self.key, self.value))
        self.held = pad(self.held, (0, keys), value=-torch.inf)

    def move_to(self, part: DocumentPart, block: int, share: float) -> None:
        """Take the next block, of ``part``; ``share``: what is added to the logits of its slots, sinks excepted."""
        changed = share != self.share
        while self.block < block:
            self.block += 1
            changed |= self._step(part)
        if changed:
            logits = self.held.clone()
            logits[self.far.sinks :] += share
            self.bias = rounded_bias(logits, self.far.bias, near=self.near, dtype=self.key.dtype)
            self.share = share

    def _step(self, part: DocumentPart) -> bool:
        """Into reach comes the block after ``self.block``, out of it goes that two before; whether logits changed."""
        gone, come = self.block - 2, self.block + 1
        tokens = slice(come % 3 * part.window, (come % 3 + 1) * part.window)
        place = self.place[gone] = self.place.pop(come)
        slots = self._slots_of(gone)
        sources = (self.key, part.key, self.far.key), (self.value, part.value, self.far.value)
        for own, x, y in sources:
            own[:, tokens] = x[:, part.keys(come, come + 1)]
            own[:, place] = y[:, slots]
        held = self.held[place.start - self.near : place.stop - self.near]
        if torch.equal(held, self.logits[slots]):
            return False
        held.copy_(self.logits[slots])
        return True

    def _slots_of(self, block: int) -> slice:
        return slice(self.far.sinks + block * self.run, self.far.sinks + (block + 1) * self.run)


def rounded_bias(logits: Tensor, bias: Tensor | None, *, near: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to the logits of ``near`` tokens, 0, and of slots, ``logits`` (S) + ``bias`` (h): (g, 1, near + S).

    All are shifted, which no softmax sees, so that the median slot's is not changed by rounding to ``dtype``.
    """
    if not len(logits):
        return None
    weighed = logits[None, None] if bias is None else logits + bias.to(logits.dtype)[:, None, None]
    median = weighed.median(dim=2, keepdim=True).values
    shift = (median.to(dtype) - median).nan_to_num(0.0).clamp(-LARGEST_SHIFT, LARGEST_SHIFT)
    return torch.cat([shift.expand(-1, -1, near), weighed + shift], dim=2).to(dtype)
