"""The formula of attention as it is written: logits, softmax, weighted sum. It runs anywhere and returns the weights.

Axes: B batch, n queries, S keys, h heads, d head dimension, b blocks of queries, g = 1 or h.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import softmax

from longform.functional.conditions import ask_gradient
from longform.functional.positions.distances import between

HIDDEN = float("-inf")


class AttentionCall(NamedTuple):
    """Arguments of attention over keys that every query sees: ``query`` (B, h, n, d); ``key``, ``value`` (B, h, S, d).

    ``usable``: bool (B or 1, g, n or 1, S), False hides a key, or None. ``bias`` (1, g, b, S) or None: added to the
    logits, a row for each ``block`` queries. ``distance_bias`` (h, 2 r + 1) or None: see positions/distances.py; query
    and key i stand at the same place.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    usable: Tensor | None = None
    bias: Tensor | None = None
    block: int = 0
    dropout: float = 0.0
    distance_bias: Tensor | None = None

    @property
    def wants_gradient(self) -> bool:
        """Whether autograd will ask for a gradient of any of the tensors, or of the bias by distance."""
        return ask_gradient((self.query, self.key, self.value, self.distance_bias))

    @property
    def mask(self) -> Tensor | None:
        """``usable``, or what is added to the logits of each query: (B or 1, g, 1 or n, S) or None."""
        if self.distance_bias is not None:
            return self._distances()
        if self.bias is None:
            return self.usable
        queries = torch.arange(self.query.shape[2], device=self.bias.device)
        return self.bias[:, :, queries // self.block].to(self.query.dtype)

    def _distances(self) -> Tensor:
        """The bias by distance, -inf for keys that are not usable: (B or 1, h, n, S)."""
        assert self.distance_bias is not None
        queries, keys = (torch.arange(x.shape[2], device=x.device) for x in (self.query, self.key))
        bias = between(self.distance_bias.to(self.query.dtype), queries, keys)[None]
        return bias if self.usable is None else bias.masked_fill(~self.usable, -torch.inf)

    def float_bias(self) -> Tensor | None:
        """``usable`` or ``bias`` as float32 (B, h, 1 or b, S), as compiled kernels read it; None for nothing."""
        rows = self.bias
        if self.usable is not None:
            rows = torch.zeros(self.usable.shape, dtype=torch.float32).masked_fill_(~self.usable, -torch.inf)
        return None if rows is None else rows.float().contiguous().expand(*self.query.shape[:2], -1, -1)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d) + mask): query (B, h, n, d), key (B, h, S, d) -> (B, h, n, S).

    ``mask``: bool, False hides a key, or added to the logits; (B or 1, g, n or 1, S) or None.
    """
    logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, HIDDEN) if mask.dtype == torch.bool else logits + mask
    return softmax(logits, dim=-1)


def attended(weights: Tensor, value: Tensor, dropout: float) -> Tensor:
    """weights (B, h, n, S), some of them dropped, times value (B, h, S, d): (B, h, n, d)."""
    return drop(weights, dropout) @ value


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """Both, with a mask as above: query (B, h, n, d), key, value (B, h, S, d) -> (B, h, n, d)."""
    return attended(attention_weights(query, key, mask), value, dropout)
