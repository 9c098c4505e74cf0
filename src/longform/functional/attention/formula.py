"""The formula of attention as it is written: logits, softmax, weighted sum. It runs anywhere and returns the weights.

Axes: B batch, n queries, S keys, h heads, d head dimension, g = 1 or h.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import softmax

HIDDEN = float("-inf")


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d) + mask): query (B, h, n, d), key (B, h, S, d) -> (B, h, n, S).

    ``mask``: bool, False hides a key, or added to the logits; (B or 1, g, n or 1, S) or None.
    """
    logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, HIDDEN) if mask.dtype == torch.bool else logits + mask
    return softmax(logits, dim=-1)


def attended(weights: Tensor, value: Tensor, dropout: float) -> Tensor:
    """weights (B, h, n, S), of which some are dropped, times value (B, h, S, d): (B, h, n, d)."""
    return drop(weights, dropout) @ value


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """Both, with a mask as above: query (B, h, n, d), key, value (B, h, S, d) -> (B, h, n, d)."""
    return attended(attention_weights(query, key, mask), value, dropout)
