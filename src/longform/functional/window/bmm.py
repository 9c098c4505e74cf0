"""Window and memory in one softmax, by plain products, for bfloat16 on a CPU without gradients.

Axes: n tokens of one document, S slots, F keys of a block, h heads, d head dimension, w block, g = 1 or h.
"""

import torch
from torch import Tensor

from longform.functional.attention.bmm import attend, rows_at_a_time
from longform.functional.window.document import DocumentAttention, Far, Part, slot_logits
from longform.functional.window.moving_keys import MovingKeys, rounded_bias
from longform.functional.window.single_tokens import single_token_bias


class ProductDocument(DocumentAttention):
    """By plain products; the window is a multiple of the slot size."""

    def __init__(self, far: Far) -> None:
        super().__init__(far)
        self._keys: MovingKeys | None = None

    def __call__(self, part: Part, out: Tensor) -> None:
        far, window = self.far, part.window
        if far.is_of_single_tokens(part):
            _single_tokens(part, far, out)
            return
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


def _single_tokens(part: Part, far: Far, out: Tensor) -> None:
    """Slots of one token each are tokens that are weighed: full attention with a bias for the far ones."""
    weighed, length = single_token_bias(part, far), part.length
    bias = None if weighed is None else weighed.to(part.query.dtype)
    keys, values = part.key.contiguous().transpose(1, 2), part.value.contiguous()
    rows = rows_at_a_time(len(part.query), length)
    for start in range(0, length, rows):
        some = slice(start, start + rows)
        attend(part.query[:, some], keys, values, None if bias is None else bias[:, some], out[some])


def _one_block(part: Part, far: Far, block: int, share: float, out: Tensor) -> None:
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
