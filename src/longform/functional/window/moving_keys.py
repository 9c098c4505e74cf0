"""The keys that a block of queries sees, its neighbours and the slots out of their reach, from block to block.

This set changes little, and its order does not matter to a softmax: tokens that come into reach are written over those
that leave it, and slots that leave it over those that come into it.

Axes: S slots, F keys of a block, h heads, d head dimension, w block, g = 1 or h.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.window.document import Far, Part, slot_logits

LARGEST_SHIFT = 2.0**-6
WHOLE = 32  # keys that fill vectors: a softmax over such rows is the faster


class MovingKeys:
    """Keys and values (h, F, d) of one of ``blocks`` after the other: 3 w tokens, the sinks, the slots out of reach.

    A block of tokens stands at its number modulo 3; ``place`` says where the slots of a block stand.
    """

    def __init__(self, part: Part, far: Far, blocks: range) -> None:
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
        spare = -self.key.shape[1] % WHOLE
        if 0 < spare <= self.key.shape[1] // WHOLE:  # products over more keys would cost what the softmax saves
            self._add_hidden(spare)

    def _add_hidden(self, keys: int) -> None:
        """Put ``keys`` that nobody sees behind the others."""
        self.key, self.value = (pad(x, (0, 0, 0, keys)) for x in (self.key, self.value))
        self.held = pad(self.held, (0, keys), value=-torch.inf)

    def move_to(self, part: Part, block: int, share: float) -> None:
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

    def _step(self, part: Part) -> bool:
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
