"""Attention by the compiled kernel of native/, for bfloat16 on a CPU whose units it knows, without gradients.

torch's fused attention multiplies with AMX, and spends most of its time between the two products: 2.9 ms for 2,048
queries, 256 keys and 12 heads of 64 on two cores, of which their multiplications would be 0.3. The kernel takes 1.3:
no largest logit is looked for (native/attention_body.h says why none is needed), and what lies between the products
stays in the cache.

Axes: B batch, n queries, S keys, h heads, d head dimension, b blocks of queries, g = 1 or h.
"""

import torch
from torch import Tensor

from longform.functional.conditions import is_plain_inference
from longform.functional.native.jobs import AttentionGradientJob, AttentionJob, Heads
from longform.functional.native.library import best_units, run

FEWEST_QUERIES = 16  # torch's was faster for one query, slower for 16
MOST_KEYS = 2**14  # of which every thread packs a head's: 5 MB where d = 64
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
    held = [with_rows(x) for x in (query, key, value)]
    job = new_job(held[0], out)
    job.slot_key, job.slot_value, job.slots = heads_of(held[1]), heads_of(held[2]), key.shape[2]
    if usable is not None:
        bias = torch.zeros(usable.shape).masked_fill_(~usable, -torch.inf).expand(batch, heads, 1, -1)
        add_bias(job, bias, blocks=False)
    run(job)
    return out


def new_job(query: Tensor, out: Tensor) -> AttentionJob:
    """For ``query`` and ``out``, both of shape (B, h, n, d); keys are still to be given."""
    batch, heads, length, dim = query.shape
    return AttentionJob(
        query=heads_of(query), out=heads_of(out), batch=batch, heads=heads, queries=length, dim=dim, scale=dim**-0.5
    )


def with_rows(x: Tensor) -> Tensor:
    """x of shape (..., d) with contiguous rows."""
    return x if x.stride(-1) == 1 else x.contiguous()


def heads_of(x: Tensor) -> Heads:
    """Where x of shape (B, h, n, d) is, d contiguous."""
    return Heads(x.data_ptr(), *x.stride()[:3])


def add_bias(job: AttentionJob | AttentionGradientJob, bias: Tensor, *, blocks: bool) -> None:
    """``bias`` float (B, h, b or 1, S), which has to live as long as ``job``."""
    job.bias, job.bias_batch, job.bias_head = bias.data_ptr(), bias.stride(0), bias.stride(1)
    job.bias_block = bias.stride(2) if blocks else 0
