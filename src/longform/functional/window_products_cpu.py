"""Window and memory in one softmax, by plain products, for bfloat16 on a CPU without gradients.

A block of queries sees its neighbours and the far slots as one set of keys, without those that it must not see. From a
block to the next this set changes little, and its order does not matter to a softmax: tokens that come into reach are
written over those that leave it, and slots that leave it over those that come into it.

Axes: n tokens of one document, S slots, F keys of a block, h heads, d head dimension, w block, g = 1 or h.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.product_attention import attend, rows_at_a_time
from longform.functional.window_forward_cpu import Far, Part, slot_logits

LARGEST_SHIFT = 2.0**-6
SINGLE_TOKENS = 512  # so many at most are looked at in one table of all pairs


def document_by_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    far: Far,
    out: Tensor,
    *,
    window: int,
    part: Part,
    carried: "_MovingKeys | None" = None,
) -> "_MovingKeys | None":
    """Write the attention of one document's query (h, c, d) to its key, value (h, m, d) into ``out`` (c, h, d).

    ``window`` is a multiple of the slot size. Returns what the document's next part takes as ``carried``.
    """
    length = part.length
    if far.size == 1 and length <= SINGLE_TOKENS and far.of_tokens and query.shape[1] == length:
        _single_tokens(query, key, value, far, out, window)
        return None
    blocks, own = -(-length // window), part.blocks(window)
    # From the first block that reaches no sink to the last one whose right neighbour is whole.
    begin, end = max(1, -(-far.sinks // window) + 1 if far.sinks else 1), length // window - 1
    run = range(max(begin, own.start), max(begin, own.start, min(end, own.stop)))
    shares = _shares(far, blocks, window)
    for block in own:
        if block not in run:
            _one_block(query, key, value, far, out, part, block, window, shares[block])
    if not run:
        return carried
    keys = carried or _MovingKeys(key, value, far, part, range(run.start, end), window)
    keys.source, keys.part = (key, value), part
    for block in run:
        rows = part.queries(block, block + 1, window)
        keys.move_to(block, shares[block])
        attend(query[:, rows], keys.key.transpose(1, 2), keys.value, keys.bias, out[rows])
    return keys


def _single_tokens(query: Tensor, key: Tensor, value: Tensor, far: Far, out: Tensor, window: int) -> None:
    """Slots of one token each are tokens that are weighed: full attention with a bias for the far ones."""
    length = query.shape[1]
    shares = _shares(far, -(-length // window), window)
    bias = None
    if any(shares) or (far.bias is not None and far.bias.any()):
        bias = _pairs(far, shares, length, window).to(query.dtype)
    keys, values = key.contiguous().transpose(1, 2), value.contiguous()
    rows = rows_at_a_time(len(query), length)
    for start in range(0, length, rows):
        part = slice(start, start + rows)
        attend(query[:, part], keys, values, None if bias is None else bias[:, part], out[part])


def _pairs(far: Far, shares: list[float], length: int, window: int) -> Tensor:
    """What is added to the logit of each query (rows) and token: (g, n, n)."""
    blocks = torch.arange(length) // window
    share = torch.tensor(shares, dtype=far.count.dtype)[blocks][:, None]
    weight = torch.where(torch.arange(length) < far.sinks, 0.0, share)[None]
    if far.bias is not None:
        weight = weight + far.bias.to(weight.dtype)[:, None, None]
    return torch.where((blocks[:, None] - blocks).abs() <= 1, 0.0, weight)


def _one_block(
    query: Tensor, key: Tensor, value: Tensor, far: Far, out: Tensor, part: Part, block: int, window: int, share: float
) -> None:
    """A block whose keys are put together for it alone; ``share`` is added to the logits of its slots, not sinks."""
    rows, reach = part.queries(block, block + 1, window), part.keys(block - 1, block + 2, window)
    first, past = max(0, block - 1), block + 2
    run, sinks = window // far.size, far.sinks
    seen = (
        slice(0, min(sinks, first * window)), slice(min(sinks, past * window), sinks),
        slice(sinks, sinks + first * run), slice(sinks + past * run, None),
    )  # fmt: skip
    keys, values = (
        torch.cat([x[:, reach], *(y[:, p] for p in seen)], dim=1) for x, y in ((key, far.key), (value, far.value))
    )
    logits = slot_logits(far)
    logits[sinks:] += share
    bias = rounded_bias(
        torch.cat([logits[part] for part in seen]), far.bias, near=reach.stop - reach.start, dtype=query.dtype
    )
    attend(query[:, rows], keys.transpose(1, 2), values, bias, out[rows])


class _MovingKeys:
    """Keys and values (h, F, d) of one of ``blocks`` after the other: 3 w tokens, the sinks, the slots out of reach.

    A block of tokens stands at its number modulo 3; ``place`` says where the slots of a block stand.
    """

    def __init__(self, key: Tensor, value: Tensor, far: Far, part: Part, blocks: range, window: int) -> None:
        self.source, self.part, self.far, self.window, self.block = (key, value), part, far, window, blocks[0]
        self.run, self.near = window // far.size, 3 * window
        around = sorted(range(self.block - 1, self.block + 2), key=lambda block: block % 3)
        outside = torch.ones(far.count.shape[0], dtype=torch.bool)
        outside[self._slots_of(self.block - 1).start : self._slots_of(self.block + 1).stop] = False
        self.key, self.value = (
            torch.cat([*(x[:, self._tokens_of(block)] for block in around), y[:, outside]], dim=1)
            for x, y in ((key, far.key), (value, far.value))
        )
        behind = range(self.block + 2, blocks[-1] + 2)
        self.place = {block: self._slots_of(block) for block in range(self.block - 1)}
        self.place |= {block: self._slots_of(block - 3) for block in behind}
        self.place = {b: slice(p.start + self.near, p.stop + self.near) for b, p in self.place.items()}
        self.logits = slot_logits(far)
        self.held, self.share, self.bias = self.logits[outside], None, None

    def move_to(self, block: int, share: float) -> None:
        """Take the next block; ``share``: what is added to the logits of its slots, sinks excepted."""
        changed = share != self.share
        while self.block < block:
            self.block += 1
            changed |= self._step()
        if changed:
            logits = self.held.clone()
            logits[self.far.sinks :] += share
            self.bias = rounded_bias(logits, self.far.bias, near=self.near, dtype=self.key.dtype)
            self.share = share

    def _step(self) -> bool:
        """Into reach comes the block after ``self.block``, out of it goes that two before; whether logits changed."""
        gone, come = self.block - 2, self.block + 1
        tokens = slice(come % 3 * self.window, (come % 3 + 1) * self.window)
        place = self.place[gone] = self.place.pop(come)
        slots = self._slots_of(gone)
        for own, x, y in zip((self.key, self.value), self.source, (self.far.key, self.far.value), strict=True):
            own[:, tokens] = x[:, self._tokens_of(come)]
            own[:, place] = y[:, slots]
        held = self.held[place.start - self.near : place.stop - self.near]
        if torch.equal(held, self.logits[slots]):
            return False
        held.copy_(self.logits[slots])
        return True

    def _tokens_of(self, block: int) -> slice:
        return self.part.keys(block, block + 1, self.window)

    def _slots_of(self, block: int) -> slice:
        return slice(self.far.sinks + block * self.run, self.far.sinks + (block + 1) * self.run)


def _shares(far: Far, blocks: int, window: int) -> list[float]:
    """min(0, log(budget / far tokens)) of each block."""
    if far.budget is None:
        return [0.0] * blocks
    rest, run = far.count[far.sinks :], window // far.size
    tokens = pad(rest, (0, blocks * run - len(rest))).view(blocks, run).sum(dim=1)
    near = pad(tokens, (1, 1)).unfold(0, 3, 1).sum(dim=1)
    return (far.budget / (tokens.sum() - near).clamp(min=1.0)).log().clamp(max=0.0).tolist()


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
