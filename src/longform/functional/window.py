"""Exact near, compressed far: a window of exact tokens beside the slots of the whole text, in time and memory O(n).

The sequence is cut into blocks of w positions. A query in block i sees the valid tokens of blocks i-1, i, i+1
exactly, and every slot that covers none of them. Each token is thus counted once: a near one by itself, a far one in
its slot, which stands for ``count`` tokens, hence log(count) on its logit. The memory as a whole is weighed by a bias
per head, and by min(0, log(budget / far tokens)): all slots together stand for at most ``budget`` tokens. A text of
two blocks or less gets full attention.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b = ceil(n / w) blocks.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad, softmax

from longform.functional.blockwise_cpu import BlockwiseAttention, has_blockwise_kernel
from longform.functional.projection import Slots

HIDDEN = float("-inf")


def block_count(length: int, window: int) -> int:
    """Blocks of ``window`` tokens in ``length`` tokens."""
    return -(-length // window)


def to_blocks(x: Tensor, window: int) -> Tensor:
    """x (B, h, n, d) -> (B, h, b, w, d), filled up with zeros."""
    return pad(x, (0, 0, 0, -x.shape[2] % window)).unflatten(2, (-1, window))


def neighbours(x: Tensor, window: int) -> Tensor:
    """x (B, h, n, d) -> (B, h, b, 3 w, d): each block with the one before and the one after, zeros beyond the ends."""
    padded = pad(x, (0, 0, window, window + -x.shape[2] % window))
    return padded.unfold(2, 3 * window, window).transpose(3, 4)


def near_bias(valid: Tensor, *, window: int, dtype: torch.dtype) -> Tensor:
    """0 for valid tokens among a block's neighbours, -inf otherwise: ``valid`` bool (B, n) -> (B, b, 3 w)."""
    padded = pad(valid, (window, window + -valid.shape[1] % window))
    seen = padded.unfold(1, 3 * window, window)
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, HIDDEN)


def far_bias(slots: Slots, *, length: int, window: int, dtype: torch.dtype) -> Tensor:
    """log(count) for slots outside a block's neighbours, -inf for the others and empty ones: (B, b, S)."""
    device = slots.count.device
    blocks = torch.arange(block_count(length, window), device=device)
    home = torch.arange(slots.count.shape[1], device=device) * slots.size[:, None] // window
    far = (home[:, None, :] - blocks[:, None]).abs() > 1
    seen = far & (slots.count > 0)[:, None, :]
    return torch.where(seen, slots.count.to(dtype).clamp(min=1.0).log()[:, None, :], HIDDEN)


def memory_weight(far: Tensor, memory_bias: Tensor | None, budget: float | None, *, heads: int) -> Tensor:
    """What is added to all slots of a block: bias + min(0, log(budget / far tokens)), float (B, h, b).

    ``far``: the logits of far_bias, (B, b, S); ``memory_bias`` (h,) or None.
    """
    weight = far.new_zeros(far.shape[0], 1, far.shape[1])
    if budget is not None:
        tokens = far.exp().sum(dim=-1).clamp(min=1.0)
        weight = (budget / tokens).log().clamp(max=0.0)[:, None, :]
    if memory_bias is not None:
        weight = weight + memory_bias.to(weight.dtype)[:, None]
    return weight.expand(-1, heads, -1)


def windowed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    memory_key: Tensor,
    memory_value: Tensor,
    slots: Slots,
    *,
    window: int,
    memory_bias: Tensor | None = None,
    memory_budget: float | None = None,
    mask: Tensor | None = None,
    implementation: str = "sdpa",
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Attention to near tokens exactly and to far ones through slots; see the head of this file.

    query, key, value (B, h, n, d) with padding blanked; memory_key, memory_value (B, h, S, d); ``window`` w in
    tokens, a multiple of the slot size; ``mask`` bool (B, n) or None. Returns out (B, h, n, d) and, in "eager", the
    weights (B, h, n, S + 3 w): slots first, then the block's neighbours.
    """
    batch, heads, length, _ = query.shape
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    valid = torch.ones(batch, length, dtype=torch.bool, device=query.device) if mask is None else mask
    near = near_bias(valid, window=window, dtype=dtype)
    far = far_bias(slots, length=length, window=window, dtype=dtype)
    weight = memory_weight(far, memory_bias, memory_budget, heads=heads)
    if implementation == "sdpa" and dropout == 0.0 and has_blockwise_kernel(query):
        out = BlockwiseAttention.apply(query, key, value, memory_key, memory_value, near, far, weight, window)
        return out, None
    return _blockwise(query, key, value, memory_key, memory_value, near, far, weight, window, dropout)


def _blockwise(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    memory_key: Tensor,
    memory_value: Tensor,
    near: Tensor,
    far: Tensor,
    weight: Tensor,
    window: int,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    length = query.shape[2]
    blocks = to_blocks(query * query.shape[-1] ** -0.5, window)
    near_logits = blocks @ neighbours(key, window).transpose(-1, -2) + near[:, None, :, None, :]
    far_logits = blocks @ memory_key[:, :, None].transpose(-1, -2)
    far_logits = far_logits + far[:, None, :, None, :] + weight[..., None, None]
    logits = torch.cat([far_logits, near_logits], dim=-1)
    nothing = (logits == HIDDEN).all(dim=-1, keepdim=True)  # a block of padding alone: finite, weight on zeros
    weights = softmax(logits.masked_fill(nothing, 0.0), dim=-1)
    far_part, near_part = drop(weights, dropout).to(value.dtype).split([memory_key.shape[2], 3 * window], dim=-1)
    out = far_part @ memory_value[:, :, None] + near_part @ neighbours(value, window)
    return out.flatten(2, 3)[:, :, :length], weights.flatten(2, 3)[:, :, :length]
