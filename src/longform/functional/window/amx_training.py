"""The window and the memory to train through by the compiled kernels of native/, in one softmax.

torch's fused attention, which serves elsewhere (blockwise_cpu.py), is called for each part, in float32 backwards. Here
the backward pass forms the weights of a block again from its logits and each query's total, and the gradients of keys
gather in the cache while their block is in reach. A head of a document is one thread's.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b blocks.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longform.functional.attention.amx import add_bias, heads_of, new_job, with_rows
from longform.functional.attention.amx_training import like_queries, native_trains_faster
from longform.functional.native.jobs import AttentionGradientJob
from longform.functional.native.library import run


class Job(NamedTuple):
    """Documents of one length that are attended together."""

    documents: slice
    length: int

    def of(self, x: Tensor) -> Tensor:
        """Their tokens of x (B, h, n, d)."""
        return x[self.documents, :, : self.length]


def native_window_trains(query: Tensor, key: Tensor, value: Tensor, *memory: Tensor, window: int) -> bool:
    """Whether gradients pass through such queries, keys and values (B, h, ., d), and ``memory``'s, by the kernels."""
    seen = 3 * window + memory[0].shape[2]
    return all(native_trains_faster(query, *x, seen=seen) for x in ((key, value), memory))


class NativeWindowAttention(torch.autograd.Function):
    """query, key, value (B, h, n, d), memory (B, h, S, d), ``far`` float32 (B, b, S), ``bias`` float32 (h).

    ``lengths``: tokens of each document, the others being padding on its right.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        memory_key: Tensor,
        memory_value: Tensor,
        far: Tensor,
        bias: Tensor,
        lengths: list[int],
        window: int,
    ) -> Tensor:
        """Returns out (B, h, n, d), zeros on padding."""
        given = [with_rows(x) for x in (query, key, value, memory_key, memory_value)]
        query, key, value, memory_key, memory_value = given
        out, bias = like_queries(query), bias.contiguous()
        _blank(out, lengths)
        totals = []
        for todo in _jobs(lengths, query.shape[2]):
            job = new_job(todo.of(query), todo.of(out))
            job.key, job.value = heads_of(todo.of(key)), heads_of(todo.of(value))
            job.slot_key, job.slot_value = (heads_of(x[todo.documents]) for x in (memory_key, memory_value))
            job.keys, job.slots, job.window = todo.length, memory_key.shape[2], window
            weights = _weights(far, todo, query.shape[1])
            add_bias(job, weights, blocks=True)
            job.head_bias = bias.data_ptr()
            totals.append(far.new_empty(*todo.of(query).shape[:3]))
            job.log_total = totals[-1].data_ptr()
            run(job)
        ctx.save_for_backward(*given, far, bias, out, *totals)
        ctx.lengths, ctx.window = lengths, window
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key, value, memory_key, memory_value and bias."""
        query, key, value, memory_key, memory_value, far, bias, out, *totals = ctx.saved_tensors
        gradient = with_rows(gradient)
        near = [like_queries(query) for _ in range(3)]
        for x in near:
            _blank(x, ctx.lengths)
        memory = [far.new_zeros(memory_key.shape) for _ in range(2)]
        heads = far.new_zeros(memory_key.shape[:2])
        jobs = _jobs(ctx.lengths, query.shape[2])
        for todo, total in zip(jobs, totals, strict=True):
            d_query, d_key, d_value = (heads_of(todo.of(x)) for x in near)
            weights = _weights(far, todo, query.shape[1])
            at = todo.documents.start
            job = AttentionGradientJob(
                query=heads_of(todo.of(query)), key=heads_of(todo.of(key)), value=heads_of(todo.of(value)),
                slot_key=heads_of(memory_key[todo.documents]), slot_value=heads_of(memory_value[todo.documents]),
                out=heads_of(todo.of(out)), d_out=heads_of(todo.of(gradient)), d_query=d_query, d_key=d_key,
                d_value=d_value, log_total=total.data_ptr(), head_bias=bias.data_ptr(),
                d_slot_key=memory[0][at].data_ptr(), d_slot_value=memory[1][at].data_ptr(),
                d_head_bias=heads[at].data_ptr(), batch=total.shape[0], heads=query.shape[1], queries=todo.length,
                slots=memory_key.shape[2], dim=query.shape[3], window=ctx.window, parts=1, scale=query.shape[3] ** -0.5,
            )  # fmt: skip
            add_bias(job, weights, blocks=True)
            run(job)
        return *near, *(x.to(key.dtype) for x in memory), None, heads.sum(dim=0).to(bias.dtype), None, None


def _jobs(lengths: list[int], length: int) -> list[Job]:
    """All documents together where none is padded, else each by itself, but for empty ones."""
    if all(n == length for n in lengths):
        return [Job(slice(0, len(lengths)), length)]
    return [Job(slice(b, b + 1), n) for b, n in enumerate(lengths) if n]


def _weights(far: Tensor, todo: Job, heads: int) -> Tensor:
    """What is added to the logits of slots, for all heads: (B, h, b, S)."""
    return far[todo.documents, None].expand(-1, heads, -1, -1)


def _blank(x: Tensor, lengths: list[int]) -> None:
    """Zeros on the padding of x (B, h, n, d)."""
    for b, n in enumerate(lengths):
        x[b, :, n:] = 0.0
