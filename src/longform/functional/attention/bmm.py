"""Attention as two matrix products and a softmax, some queries at a time, for bfloat16 on a CPU without AMX.

It serves where compiled.py was not compiled, and what that does not take, such as heads no multiple of 32 wide.

torch's fused attention multiplies bfloat16 at the speed of float32 where the CPU has AVX512-bf16 but no AMX; plain
products there are three times as fast. Measured on one core of a Zen 4, 2,048 queries, 256 keys, 12 heads of 64: 23 ms
fused, 14 ms so. The logits are rounded to bfloat16 between the two, as unfused attention does. The hidden states of
all-MiniLM-L6-v2 on licence texts of 1,024 tokens are then off float32's by 1.43 % (fused: 1.32 %) with full attention
and by 1.17 % (1.15 %) with 256 slots. A training step of Linformer (6 layers of 384 or 3 of 768, 512 to 16,384 tokens,
k = 256) takes 5 to 17 % less time so; its backward pass forms the weights again, some queries at a time.

Axes: B batch, n queries, c queries at a time, S keys, h heads, d head dimension, g = 1 or h.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longform.functional.attention.call import AttentionCall

LOGITS = 2**21  # elements at a time: twice what the second-level caches of two cores hold
ROWS = 64  # queries at a time, at least


def infer(call: AttentionCall) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d) + bias) V without gradients: (B, h, n, d)."""
    return _attention(*call.tensors, call.mask)


def train(call: AttentionCall) -> Tensor:
    """The same through which gradients pass: (B, h, n, d)."""
    return BmmAttention.apply(*call.tensors, call.usable)


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """query (B, h, n, d), key, value (B, h, S, d), ``mask`` (B or 1, g, 1 or n, S), bool or added -> (B, h, n, d)."""
    batch, heads, length, dim = query.shape
    out = query.new_empty(batch, length, heads, dim)
    for b in range(batch):
        stop, bias = seen_keys(_of(mask, b), key[b])
        keys, values = key[b, :, :stop].contiguous().transpose(1, 2), value[b, :, :stop].contiguous()
        size = rows_at_a_time(heads, stop)
        for start in range(0, length, size):
            some = slice(start, start + size)
            own = bias if bias is None or bias.shape[1] == 1 else bias[:, some]
            attend(query[b, :, some], keys, values, own, out[b, some])
    return out.transpose(1, 2)


def _of(mask: Tensor | None, document: int) -> Tensor | None:
    return None if mask is None else mask[document if mask.shape[0] > 1 else 0]


class BmmAttention(torch.autograd.Function):
    """query (B, h, n, d), key, value (B, h, S, d), ``usable`` bool (B or 1, g, 1, S) or None.

    With P the weights, O the output and dO its gradient: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - rowsum(P ∘ dO Vᵀ)),
    dQ = dS K / sqrt(d), dK = dSᵀ Q / sqrt(d).
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, usable: Tensor | None) -> Tensor:
        """Returns (B, h, n, d)."""
        ctx.save_for_backward(query, key, value, usable)
        with torch.autocast("cpu", enabled=False):
            return _attention(query, key, value, usable)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key and value."""
        query, key, value, usable = ctx.saved_tensors
        gradients = [torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)]
        for b in range(query.shape[0]):
            _document_gradients(query[b], key[b], value[b], _of(usable, b), gradient[b], *(x[b] for x in gradients))
        return *gradients, None


def _document_gradients(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, gradient: Tensor, *gradients: Tensor
) -> None:
    """Of one document (h, n, d): those of query, key and value are written into ``gradients``."""
    stop, bias = seen_keys(seen, key)
    keys, values = key[:, :stop].contiguous(), value[:, :stop].contiguous()
    heads, length, dim = query.shape
    scale, rows = dim**-0.5, rows_at_a_time(heads, stop)
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    totals = [x.new_zeros(x.shape, dtype=wide) for x in (keys, values)]
    for start in range(0, length, rows):
        some = slice(start, start + rows)
        own, d_out = query[:, some].contiguous(), gradient[:, some].contiguous()
        weights = query.new_empty(heads, own.shape[1], stop)
        weigh(own, keys.transpose(1, 2), bias, weights)
        totals[1] += weights.transpose(1, 2) @ d_out
        d_logits = torch._softmax_backward_data(d_out @ values.transpose(1, 2), weights, -1, weights.dtype)
        gradients[0][:, some] = (d_logits @ keys).mul_(scale)
        totals[0] += d_logits.transpose(1, 2) @ own
    gradients[1][:, :stop] = totals[0].mul_(scale)
    gradients[2][:, :stop] = totals[1]


def seen_keys(mask: Tensor | None, key: Tensor) -> tuple[int, Tensor | None]:
    """Of key (h, S, d) under ``mask`` (g, 1 or c, S): how many until the last that is seen, and the bias of these.

    ``mask``: bool, False hides a key, or a bias already.
    """
    if mask is None or mask.dtype != torch.bool:
        return key.shape[1], mask
    stop = int(mask.flatten(0, 1).any(dim=0).nonzero()[-1]) + 1
    seen = mask[..., :stop]
    return stop, None if seen.all() else key.new_zeros(seen.shape).masked_fill_(~seen, -torch.inf)


def rows_at_a_time(heads: int, keys: int) -> int:
    """Queries whose logits the cache holds."""
    return max(ROWS, min(512, LOGITS // (heads * keys) // ROWS * ROWS))


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Product, softmax, product: query (h, c, d), keys (h, d, S), values (h, S, d) -> ``out`` (c, h, d).

    ``bias`` (g, 1 or c, S) in their dtype, or None. As many heads at a time as the cache holds the logits of.
    """
    heads, rows, _ = query.shape
    several = max(1, min(heads, LOGITS // (rows * keys.shape[2])))
    logits = query.new_empty(several, rows, keys.shape[2])
    for first in range(0, heads, several):
        part = slice(first, min(first + several, heads))
        weights = logits[: part.stop - first]
        weigh(query[part], keys[part], bias if bias is None or len(bias) == 1 else bias[part], weights)
        out[:, part] = torch.bmm(weights, values[part]).transpose(0, 1)


def weigh(query: Tensor, keys: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """softmax(Q Kᵀ / sqrt(d) + bias) -> ``out`` (h, c, S): query (h, c, d), keys (h, d, S), ``bias`` (g, 1 or c, S)."""
    scale = query.shape[2] ** -0.5
    if bias is None:
        torch.baddbmm(out, query, keys, beta=0, alpha=scale, out=out)
    else:
        torch.baddbmm(bias, query, keys, alpha=scale, out=out)
    torch.softmax(out, -1, out=out)
