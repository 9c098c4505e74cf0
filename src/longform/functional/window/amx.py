"""A document's window and memory in one softmax by the compiled kernel; slots that a block does not see cost nothing.

Axes: c queries and m keys at hand, S slots, h heads, d head dimension, w block, b blocks.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from longform.functional.attention.amx import add_bias, heads_of, new_job, with_rows
from longform.functional.native.library import run
from longform.functional.window.document import DocumentAttention, Far, Part, far_logits, far_shares
from longform.functional.window.single_tokens import single_token_bias_of_blocks

LARGEST_KEPT = 2**16  # weights of a document, in floats


class NativeDocument(DocumentAttention):
    """A document's window and memory by the kernel."""

    def __call__(self, part: Part, out: Tensor) -> None:
        far = self.far
        query, key, value, far_key, far_value = (
            with_rows(x)[None] for x in (part.query, part.key, part.value, far.key, far.value)
        )
        job = new_job(query, out.transpose(0, 1)[None])
        if far.is_of_single_tokens(part):
            far_key, far_value, job.slots = key, value, part.length
            weighed = single_token_bias_of_blocks(part, far)
            if weighed is not None:
                job.window = part.window
                bias = weighed.float().expand(query.shape[1], -1, -1)[None]
                add_bias(job, bias, blocks=True)
        else:
            logits = self._logits(part)
            job.key, job.value, job.keys, job.slots = heads_of(key), heads_of(value), key.shape[2], far.key.shape[1]
            job.window, job.start, job.key_start = part.window, part.start, part.key_start
            add_bias(job, logits[None, None].expand(1, query.shape[1], -1, -1), blocks=True)
            if far.bias is not None:
                head_bias = far.bias.detach().float().contiguous()
                job.head_bias = head_bias.data_ptr()
        job.slot_key, job.slot_value = heads_of(far_key), heads_of(far_value)
        run(job)

    def _logits(self, part: Part) -> Tensor:
        """``far_logits`` of the part's queries: float32 (b, S)."""
        far, blocks = self.far, part.blocks()
        if part.is_whole and part.all_blocks() * far.count.shape[0] <= LARGEST_KEPT:
            even = _even_slots(part.length, far.size, far.sinks, far.count.shape[0], far.budget, part.window)
            if torch.equal(even.count, far.count):
                return even.logits
        return far_logits(far, self.shares(part), blocks.start, blocks.stop, part.window).float().contiguous()


class _EvenSlots(NamedTuple):
    count: Tensor
    logits: Tensor


@lru_cache(maxsize=64)
def _even_slots(length: int, size: int, sinks: int, slots: int, budget: float | None, window: int) -> _EvenSlots:
    """What slots of a document without gaps are counted (S) and weighed (b, S), which all layers share."""
    starts = torch.arange(slots - sinks) * size
    tokens = (starts + size).clamp(max=length) - starts.clamp(min=sinks)
    count = torch.cat([torch.arange(sinks) < length, tokens.clamp(min=0)]).float()
    nothing = count.new_empty(0)
    far = Far(nothing, nothing, count, size, sinks, None, budget)
    blocks = -(-length // window)
    return _EvenSlots(count, far_logits(far, far_shares(far, blocks, window), 0, blocks, window).contiguous())
