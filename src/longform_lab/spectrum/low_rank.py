"""Attention by the best map of rank k (paper, equation 6), which E and F approximate; an SVD a map.

Axes: B batch, h heads, n tokens, d head dimension, k rank.
"""

import torch
from torch import Tensor

from longform.errors import InputError


def best_low_rank(maps: Tensor, *, rank: int) -> Tensor:
    """The map of rank <= ``rank`` nearest to each of ``maps`` (..., m, n): the sum of the first terms of its SVD.

    Nearest in the Frobenius and in the spectral norm (Eckart, Young, Mirsky). float32, or given float64, in it; rows
    need not be distributions: entries can be below 0. Raises InputError for a rank outside 1 to min(m, n).
    """
    largest = min(maps.shape[-2:])
    if not 1 <= rank <= largest:
        raise InputError(f"rank is {rank}; maps of the shape {tuple(maps.shape)} have ranks from 1 to {largest}")
    wide = maps if maps.dtype == torch.float64 else maps.float()
    left, values, right = torch.linalg.svd(wide, full_matrices=False)
    return (left[..., :rank] * values[..., None, :rank]) @ right[..., :rank, :]


def svd_low_rank_attention(
    query: Tensor, key: Tensor, value: Tensor, *, rank: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """P_low V for P = softmax(Q Kᵀ / sqrt(d)) and P_low its best map of rank ``rank`` (paper, equation 6).

    query, key, value (B, h, n, d); ``mask`` bool (B, n), False hides a token: its column is out of the softmax and its
    row is zeros, so that it has no part in the rank. Returns out (B, h, n, d) and P_low (B, h, n, n), in float32 or,
    given float64, in it. O(n³) a map. Raises InputError for a rank outside 1 to n.
    """
    wide = query.dtype if query.dtype == torch.float64 else torch.float32
    logits = query.to(wide) @ key.to(wide).transpose(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None, None], torch.finfo(wide).min)
    probabilities = logits.softmax(-1)
    if mask is not None:
        probabilities = probabilities * (mask[:, None, :, None] & mask[:, None, None])
    low = best_low_rank(probabilities, rank=rank)
    return low @ value.to(wide), low
