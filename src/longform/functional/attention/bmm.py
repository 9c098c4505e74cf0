"""Attention as two matrix products and a softmax, some queries at a time, for bfloat16 on a CPU without gradients.

torch's fused attention multiplies bfloat16 at the speed of float32 where the CPU has AVX512-bf16 but no AMX; plain
products there are three times as fast. Measured on one core of a Zen 4, 2,048 queries, 256 keys, 12 heads of 64:
23 ms fused, 14 ms so. The logits are rounded to bfloat16 between the two, as unfused attention does. The hidden states
of all-MiniLM-L6-v2 on licence texts of 1,024 tokens are then off float32's by 1.43 % (fused: 1.32 %) with full
attention and by 1.17 % (1.15 %) with 256 slots.

Axes: B batch, n queries, c queries at a time, S keys, h heads, d head dimension, g = 1 or h.
"""

from functools import cache

import torch
from torch import Tensor

from longform.functional.conditions import is_plain_inference
from longform.functional.hardware import has_amx

LOGITS = 2**21  # elements at a time: twice what the second-level caches of two cores hold
ROWS = 64  # queries at a time, at least


def products_are_faster(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether this path serves such tensors, and faster than fused attention.

    The machine is asked last: a compiler cannot trace the question.
    """
    return query.dtype == torch.bfloat16 and is_plain_inference(query, key, value) and has_slow_fused_attention()


@cache
def has_slow_fused_attention() -> bool:
    """A CPU that multiplies bfloat16, but not by the unit (AMX) that torch's fused attention knows."""
    has_products = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return has_products and torch.cpu._is_avx512_bf16_supported() and not has_amx()


def attention_by_products(query: Tensor, key: Tensor, value: Tensor, usable: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d)) V: query (B, h, n, d), key, value (B, h, S, d) -> (B, h, n, d).

    ``usable``: bool (B or 1, g, 1, S) or None.
    """
    batch, heads, length, dim = query.shape
    out = query.new_empty(batch, length, heads, dim)
    for b in range(batch):
        stop, bias = seen_keys(None if usable is None else usable[b if usable.shape[0] > 1 else 0], key[b])
        keys, values = key[b, :, :stop].contiguous().transpose(1, 2), value[b, :, :stop].contiguous()
        size = rows_at_a_time(heads, stop)
        for start in range(0, length, size):
            part = query[b, :, start : start + size]
            attend(part, keys, values, bias, out[b, start : start + size])
    return out.transpose(1, 2)


def seen_keys(seen: Tensor | None, key: Tensor) -> tuple[int, Tensor | None]:
    """Of key (h, S, d) under ``seen`` bool (g, 1, S): how many until the last that is seen, and the bias of these."""
    if seen is None:
        return key.shape[1], None
    stop = int(seen.flatten(0, 1).any(dim=0).nonzero()[-1]) + 1
    seen = seen[..., :stop]
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
        room = logits[: part.stop - first]
        weigh(query[part], keys[part], bias if bias is None or len(bias) == 1 else bias[part], room)
        out[:, part] = torch.bmm(room, values[part]).transpose(0, 1)


def weigh(query: Tensor, keys: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """softmax(Q Kᵀ / sqrt(d) + bias) -> ``out`` (h, c, S): query (h, c, d), keys (h, d, S), ``bias`` (g, 1 or c, S)."""
    scale = query.shape[2] ** -0.5
    if bias is None:
        torch.baddbmm(out, query, keys, beta=0, alpha=scale, out=out)
    else:
        torch.baddbmm(bias, query, keys, alpha=scale, out=out)
    torch.softmax(out, -1, out=out)
