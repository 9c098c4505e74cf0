"""Attention to train through by the compiled kernels of native/, for bfloat16 on a CPU whose units they know.

The weights are not kept: the backward pass forms them again from the logits and each row's total. With P the weights, O
the output and dO its gradient: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O)) / sqrt(d), dQ = dS K, dK = dSᵀ Q.

Axes: B batch, n queries, S keys, h heads, d head dimension, p parts of the queries, g = 1 or h.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longform.functional.attention.amx import FEWEST_QUERIES, WHOLE, add_bias, heads_of, new_job, with_rows
from longform.functional.conditions import is_plain
from longform.functional.native.jobs import AttentionGradientJob
from longform.functional.native.library import best_units, run

MOST_KEYS = 2**12  # the slopes of 128 queries' weights are 1 MB then, half of a second cache
PART = 512  # queries that are worth packing a head's keys for


def native_trains_faster(query: Tensor, key: Tensor, value: Tensor, *, seen: int | None = None) -> bool:
    """Whether gradients pass through such tensors (B, h, ., d) by the kernels, faster than by torch's attention.

    ``seen``: how many keys a query meets, where these are not all.
    """
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    if not wanted or not is_plain(query, key, value):  # first, as in a graph the others would be conditions on lengths
        return False
    fits = query.dtype == torch.bfloat16 and query.shape[-1] % WHOLE == 0
    many = query.shape[-2] >= FEWEST_QUERIES and key.shape[-2] > 0
    return fits and many and (key.shape[-2] if seen is None else seen) <= MOST_KEYS and best_units() is not None


class NativeAttention(torch.autograd.Function):
    """softmax(Q Kᵀ / sqrt(d)) V: query (B, h, n, d), key, value (B, h, S, d), ``usable`` bool (B or 1, g, 1, S)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, usable: Tensor | None) -> Tensor:
        """Returns (B, h, n, d)."""
        query, key, value = (with_rows(x) for x in (query, key, value))
        out, total = like_queries(query), query.new_empty(query.shape[:3], dtype=torch.float32)
        job = new_job(query, out)
        job.slot_key, job.slot_value, job.slots = heads_of(key), heads_of(value), key.shape[2]
        job.log_total = total.data_ptr()
        bias = _bias(usable, query)
        if bias is not None:
            add_bias(job, bias, blocks=False)
        run(job)
        ctx.save_for_backward(query, key, value, usable, out, total)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key and value."""
        query, key, value, usable, out, total = ctx.saved_tensors
        batch, heads, length, dim = query.shape
        gradient, d_query = with_rows(gradient), like_queries(query)
        parts = _parts(batch * heads, length)
        sums = [total.new_empty(batch, heads, parts, key.shape[2], dim) for _ in range(2)]
        job = AttentionGradientJob(
            query=heads_of(query), slot_key=heads_of(key), slot_value=heads_of(value), out=heads_of(out),
            d_out=heads_of(gradient), d_query=heads_of(d_query), log_total=total.data_ptr(),
            d_slot_key=sums[0].data_ptr(), d_slot_value=sums[1].data_ptr(), batch=batch, heads=heads, queries=length,
            slots=key.shape[2], dim=dim, parts=parts, scale=dim**-0.5,
        )  # fmt: skip
        bias = _bias(usable, query)
        if bias is not None:
            add_bias(job, bias, blocks=False)
        run(job)
        return d_query, *((x.sum(dim=2) if parts > 1 else x[:, :, 0]).to(key.dtype) for x in sums), None


def _parts(heads: int, length: int) -> int:
    """So many that every thread has some, of no fewer than PART queries."""
    return max(1, min(-(-2 * torch.get_num_threads() // heads), length // PART))


def like_queries(query: Tensor) -> Tensor:
    """Memory of the shape of ``query`` (B, h, n, d), the heads of a token side by side, as a layer's product reads."""
    batch, heads, length, dim = query.shape
    return query.new_empty(batch, length, heads, dim).transpose(1, 2)


def _bias(usable: Tensor | None, query: Tensor) -> Tensor | None:
    """0 for a slot that is seen, minus infinity for others: float (B, h, 1, S)."""
    if usable is None:
        return None
    return torch.zeros(usable.shape).masked_fill_(~usable, -torch.inf).expand(*query.shape[:2], 1, -1)
