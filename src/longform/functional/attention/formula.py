"""The formula of attention as it is written: logits, softmax, weighted sum. It runs anywhere and returns the weights.

Axes: B batch, n queries, S keys, h heads, d head dimension, g = 1 or h.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import softmax

HIDDEN = float("-inf")


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / sqrt(d) + mask) V and the weights: query (B, h, n, d), key, value (B, h, S, d).

    ``mask``: bool, False hides a key, or added to the logits; (B or 1, g, n or 1, S) or None.
    Returns (B, h, n, d), (B, h, n, S).
    """
    logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, HIDDEN) if mask.dtype == torch.bool else logits + mask
    weights = softmax(logits, dim=-1)
    return drop(weights, dropout) @ value, weights
