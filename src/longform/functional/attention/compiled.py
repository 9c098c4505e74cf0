"""Attention by the compiled kernels of csrc/attention.c and attention_gradient.c, for bfloat16 with AMX or AVX512-bf16.

torch's fused attention multiplies with AMX, and spends most of its time between the two products: 2.9 ms for 2,048
queries, 256 keys and 12 heads of 64 on two cores; the multiplications in it would take 0.3. The kernel takes 1.3: no
largest logit is looked for (csrc/attention.c says why none is needed), and what lies between the products stays in the
cache. Without AMX, on one core of a Zen 4, 8,192 queries, 320 keys and 12 heads of 32 took 30 ms, two plain products
and a softmax 53 (docs/lab/rows.md has whole models). In training the weights are not kept: the backward pass forms them
again from the logits and each row's total.

Axes: B batch, n queries, S keys, h heads, d head dimension, b blocks of queries, p parts of the queries.
"""

from typing import Any

import torch
from torch import Tensor

from longform.functional.attention import formula
from longform.functional.attention.formula import AttentionCall
from longform.functional.conditions import lacks_compiled
from longform.functional.native.jobs import (
    AttentionGradientJob,
    AttentionJob,
    contiguous_rows,
    heads_of,
    pointer,
    strided,
)
from longform.functional.native.library import run
from longform.functional.second_gradient import Gradients, differentiable_by

MOST_KEYS = 2**14  # every thread packs those of a head: 5 MB where d = 64
MOST_TRAINED_KEYS = 2**12  # the gradients of 128 queries' weights are 1 MB then, half of a second-level cache
PART = 512  # queries that are worth packing a head's keys for


def lacks(call: AttentionCall, forced: bool) -> str | None:
    """The first thing that ``call`` lacks for ``infer``, or None; see dispatch.Kernel."""
    return lacks_compiled(call, forced, trains=False) or _lacks_keys(call, MOST_KEYS)


def lacks_in_training(call: AttentionCall, forced: bool) -> str | None:
    """The first thing that ``call`` lacks for ``train``, or None."""
    if call.bias is not None:
        return "no bias on the logits"
    return lacks_compiled(call, forced, trains=True) or _lacks_keys(call, MOST_TRAINED_KEYS)


def _lacks_keys(call: AttentionCall, most: int) -> str | None:
    return None if 0 < call.key.shape[-2] <= most else f"1 to {most} keys"


def infer(call: AttentionCall) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d) + bias) V without gradients: (B, h, n, d)."""
    query, key, value = (contiguous_rows(x) for x in (call.query, call.key, call.value))
    out, bias = like_queries(query), call.float_bias()
    job = new_job(query, out, slot_key=key, slot_value=value)
    if bias is not None:
        job.window = call.block if bias.shape[2] > 1 else 0
        add_bias(job, bias)
    run(job)
    return out


def train(call: AttentionCall) -> Tensor:
    """Attention through which gradients pass: (B, h, n, d)."""
    return CompiledAttention.apply(call.query, call.key, call.value, call.float_bias())


class CompiledAttention(torch.autograd.Function):
    """query (B, h, n, d), key, value (B, h, S, d), ``bias`` float32 (B, h, 1, S) or None.

    With P the weights, O the output and dO its gradient: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O)) / sqrt(d),
    dQ = dS K, dK = dSᵀ Q.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """Returns (B, h, n, d)."""
        given = query, key, value
        query, key, value = (contiguous_rows(x) for x in given)
        out, total = like_queries(query), query.new_empty(query.shape[:3], dtype=torch.float32)
        job = new_job(query, out, slot_key=key, slot_value=value)
        job.log_total = pointer(total, torch.float32, *query.shape[:3])
        if bias is not None:
            add_bias(job, bias)
        run(job)
        ctx.save_for_backward(*given, bias, out, total)
        ctx.options = ()
        return out

    @staticmethod
    @differentiable_by(formula.attention)
    def backward(ctx: Any, saved: Any, gradient: Tensor) -> Gradients:
        """Gradients of query, key and value."""
        *given, bias, out, total = saved
        query, key, value, out, gradient = (contiguous_rows(x) for x in (*given, out, gradient))
        (batch, heads, length, dim), d_query = query.shape, like_queries(query)
        parts = _parts(batch * heads, length)
        sums = [total.new_empty(batch, heads, parts, key.shape[2], dim) for _ in range(2)]
        job = AttentionGradientJob(parts=parts)
        give_heads(job, query=query, out=out, d_out=gradient, d_query=d_query, slot_key=key, slot_value=value)
        job.log_total = pointer(total, torch.float32, batch, heads, length)
        job.d_slot_key, job.d_slot_value = (pointer(x, torch.float32, *x.shape) for x in sums)
        if bias is not None:
            add_bias(job, bias)
        run(job)
        return d_query, *((x.sum(dim=2) if parts > 1 else x[:, :, 0]).to(key.dtype) for x in sums), None


def new_job(query: Tensor, out: Tensor, **keys: Tensor) -> AttentionJob:
    """For query and out (B, h, n, d), and ``keys`` by name: key and value, slot_key and slot_value, (B, h, ., d)."""
    job = AttentionJob(keys=keys["key"].shape[2] if "key" in keys else 0)
    give_heads(job, query=query, out=out, **keys)
    return job


def give_heads(job: AttentionJob | AttentionGradientJob, *, query: Tensor, slot_key: Tensor, **others: Tensor) -> None:
    """Tensors (B, h, ., d) by the names that ``job`` has for them, and their sizes."""
    for name, x in {"query": query, "slot_key": slot_key, **others}.items():
        setattr(job, name, heads_of(x, *query.shape[:2], x.shape[2], query.shape[3]))
    (job.batch, job.heads, job.queries, job.dim), job.slots = query.shape, slot_key.shape[2]
    job.scale = query.shape[3] ** -0.5


def add_bias(job: AttentionJob | AttentionGradientJob, bias: Tensor) -> None:
    """``bias`` float32 (B, h, b or 1, S), S contiguous, which has to live as long as ``job``, whose window is known."""
    rows = bias.shape[2] if bias.shape[2] == 1 else -(-job.queries // job.window)
    shape = (job.batch, job.heads, rows, job.slots)
    job.bias, job.bias_batch, job.bias_head, block = strided(bias, torch.float32, *shape)
    job.bias_block = block if rows > 1 else 0


def _parts(heads: int, length: int) -> int:
    """So many that every thread has some, of no fewer than PART queries."""
    return max(1, min(-(-2 * torch.get_num_threads() // max(1, heads)), length // PART))


def like_queries(query: Tensor) -> Tensor:
    """Memory of the shape of ``query`` (B, h, n, d), the heads of a token side by side, as a layer's product reads."""
    batch, heads, length, dim = query.shape
    return query.new_empty(batch, length, heads, dim).transpose(1, 2)
