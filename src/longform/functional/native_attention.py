"""Attention by the compiled kernel of native/, for bfloat16 on a CPU whose units it knows, without gradients.

torch's fused attention multiplies with AMX, and spends most of its time between the two products: 2.9 ms for 2,048
queries, 256 keys and 12 heads of 64 on two cores, of which their multiplications would be 0.3. The kernel takes 1.3:
no largest logit is looked for (native/attention_body.h says why none is needed), and what lies between the products
stays in the cache. Window and memory are one softmax, and slots that nobody sees cost nothing.

Axes: B batch, n queries, S keys, h heads, d head dimension, b blocks, g = 1 or h.
"""

import torch
from torch import Tensor

from longform.functional.document import DocumentAttention, Part, far_logits
from longform.functional.inference_calls import is_plain_inference
from longform.functional.native_library import AttentionJob, Heads, best_units, run_attention
from longform.functional.window_pairs_cpu import single_token_bias_of_blocks

FEWEST_QUERIES = 16  # torch's was faster for one query, slower for 16
MOST_KEYS = 2**14  # whose logits still stand in a cache for 32 queries
WHOLE = 32  # what the head dimension is a multiple of: a tile's pairs


def native_is_faster(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel serves query, key, value of shape (..., ., d), and faster than torch's fused attention.

    The machine is asked last: a compiler cannot trace the question.
    """
    fits = query.dtype == torch.bfloat16 and query.shape[-1] % WHOLE == 0
    if not fits or query.shape[-2] < FEWEST_QUERIES or not 0 < key.shape[-2] <= MOST_KEYS:
        return False
    return is_plain_inference(query, key, value) and best_units() is not None


def native_attention(query: Tensor, key: Tensor, value: Tensor, usable: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d)) V: query (B, h, n, d), key, value (B, h, S, d), bfloat16 -> (B, h, n, d).

    ``usable``: bool (B or 1, g, 1, S) or None.
    """
    batch, heads, length, dim = query.shape
    out = query.new_empty(batch, length, heads, dim).transpose(1, 2)
    held = [_rows(x) for x in (query, key, value)]
    job = _job(held[0], out)
    job.slot_key, job.slot_value, job.slots = _heads(held[1]), _heads(held[2]), key.shape[2]
    if usable is not None:
        bias = torch.zeros(usable.shape).masked_fill_(~usable, -torch.inf).expand(batch, heads, 1, -1)
        _add_bias(job, bias, blocks=False)
    run_attention(job)
    return out


class NativeDocument(DocumentAttention):
    """A document's window and memory by the kernel."""

    def __call__(self, part: Part, out: Tensor) -> None:
        far = self.far
        query, key, value, far_key, far_value = (
            _rows(x)[None] for x in (part.query, part.key, part.value, far.key, far.value)
        )
        job = _job(query, out.transpose(0, 1)[None])
        if far.is_of_single_tokens(part):
            far_key, far_value, job.slots = key, value, part.length
            weighed = single_token_bias_of_blocks(part, far)
            if weighed is not None:
                job.window = part.window
                bias = weighed.float().expand(query.shape[1], -1, -1)[None]
                _add_bias(job, bias, blocks=True)
        else:
            blocks = part.blocks()
            logits = far_logits(far, self.shares(part), blocks.start, blocks.stop, part.window).float().contiguous()
            job.key, job.value, job.keys, job.slots = _heads(key), _heads(value), key.shape[2], far.key.shape[1]
            job.window, job.start, job.key_start = part.window, part.start, part.key_start
            _add_bias(job, logits[None, None].expand(1, query.shape[1], -1, -1), blocks=True)
            if far.bias is not None:
                head_bias = far.bias.detach().float().contiguous()
                job.head_bias = head_bias.data_ptr()
        job.slot_key, job.slot_value = _heads(far_key), _heads(far_value)
        run_attention(job)


def _job(query: Tensor, out: Tensor) -> AttentionJob:
    batch, heads, length, dim = query.shape
    return AttentionJob(
        query=_heads(query), out=_heads(out), batch=batch, heads=heads, queries=length, dim=dim, scale=dim**-0.5
    )


def _rows(x: Tensor) -> Tensor:
    """``x`` with contiguous rows."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _heads(x: Tensor) -> Heads:
    return Heads(x.data_ptr(), *x.stride()[:3])


def _add_bias(job: AttentionJob, bias: Tensor, *, blocks: bool) -> None:
    """``bias`` float (B, h, b or 1, S), which has to live as long as ``job``."""
    job.bias, job.bias_batch, job.bias_head = bias.data_ptr(), bias.stride(0), bias.stride(1)
    job.bias_block = bias.stride(2) if blocks else 0
