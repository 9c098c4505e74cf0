"""Attention by plain products that can be trained through, for bfloat16 on a CPU without AMX.

A training step of Linformer (6 layers of 384 or 3 of 768, 512 to 16,384 tokens, k = 256) takes 5 to 17 % less time so
than through torch's fused attention, on two cores of a Zen 4. Neither pass keeps the weights: the backward pass forms
them again, some queries at a time. With P the weights, O the output and dO its gradient: dV = Pᵀ dO,
dS = P ∘ (dO Vᵀ - rowsum(P ∘ dO Vᵀ)), dQ = dS K / sqrt(d), dK = dSᵀ Q / sqrt(d).

Axes: B batch, n queries, c queries at a time, S keys, h heads, d head dimension, g = 1 or h.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longform.functional.attention.bmm import (
    attention_by_products,
    has_slow_fused_attention,
    rows_at_a_time,
    seen_keys,
    weigh,
)
from longform.functional.conditions import is_plain


def products_train_faster(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether gradients pass through such tensors faster by products than by torch's fused attention."""
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    return wanted and query.dtype == torch.bfloat16 and is_plain(query, key, value) and has_slow_fused_attention()


class ProductAttention(torch.autograd.Function):
    """softmax(Q Kᵀ / sqrt(d)) V: query (B, h, n, d), key, value (B, h, S, d), ``usable`` bool (B or 1, g, 1, S)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, usable: Tensor | None) -> Tensor:
        """Returns (B, h, n, d)."""
        ctx.save_for_backward(query, key, value, usable)
        with torch.autocast("cpu", enabled=False):
            return attention_by_products(query, key, value, usable)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key and value."""
        query, key, value, usable = ctx.saved_tensors
        slopes = [torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)]
        for b in range(query.shape[0]):
            seen = None if usable is None else usable[b if usable.shape[0] > 1 else 0]
            _document(query[b], key[b], value[b], seen, gradient[b], *(x[b] for x in slopes))
        return *slopes, None


def _document(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, gradient: Tensor, *slopes: Tensor
) -> None:
    """One document (h, n, d): its gradients are written into ``slopes``."""
    stop, bias = seen_keys(seen, key)
    keys, values = key[:, :stop].contiguous(), value[:, :stop].contiguous()
    heads, length, dim = query.shape
    scale, rows = dim**-0.5, rows_at_a_time(heads, stop)
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    totals = [x.new_zeros(x.shape, dtype=wide) for x in (keys, values)]
    for start in range(0, length, rows):
        part = slice(start, start + rows)
        own, slope = query[:, part].contiguous(), gradient[:, part].contiguous()
        weights = query.new_empty(heads, own.shape[1], stop)
        weigh(own, keys.transpose(1, 2), bias, weights)
        totals[1] += weights.transpose(1, 2) @ slope
        slant = torch._softmax_backward_data(slope @ values.transpose(1, 2), weights, -1, weights.dtype)
        slopes[0][:, part] = (slant @ keys).mul_(scale)
        totals[0] += slant.transpose(1, 2) @ own
    slopes[1][:, :stop] = totals[0].mul_(scale)
    slopes[2][:, :stop] = totals[1]
