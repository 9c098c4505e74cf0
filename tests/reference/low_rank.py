"""Slow, obvious twins of ``low_rank.py`` and ``random_projection.py`` in float64: one map, one row at a time.

n tokens, d head dimension, k rank or slots. Nothing here is imported by the fast functions, and nothing of theirs is
imported here. Equation numbers are those of arXiv 2006.04768 v3.
"""

import math

import numpy as np
import torch
from torch import Tensor


def reference_svd_attention(
    query: Tensor, key: Tensor, value: Tensor, rank: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Equation 6 for one head: query, key, value (n, d); ``mask`` (n,) of 0 and 1. Out (n, d) and the map (n, n)."""
    length, dim = query.shape
    valid = [t for t in range(length) if mask is None or bool(mask[t])]
    rows = []
    for i in range(length):
        weights = {j: math.exp(float(query[i].double() @ key[j].double()) / math.sqrt(dim)) for j in valid}
        total = sum(weights.values())
        rows.append([weights.get(j, 0.0) / total if i in valid else 0.0 for j in range(length)])
    left, values, right = np.linalg.svd(np.array(rows, dtype=np.float64))
    low = sum(values[i] * np.outer(left[:, i], right[i]) for i in range(rank))
    found = torch.from_numpy(np.asarray(low))
    return found @ value.double(), found


def reference_shortened_map(logits: Tensor, key_matrix: Tensor, value_matrix: Tensor) -> Tensor:
    """softmax(A Eᵀ) F for one head: logits A (n, n), E and F (k, n); the map (n, n) that equation 7 implies."""
    rows = []
    for row in logits.double():
        scores = [float(row @ slot) for slot in key_matrix.double()]
        total = sum(math.exp(score - max(scores)) for score in scores)
        weights = [math.exp(score - max(scores)) / total for score in scores]
        rows.append(sum(weight * slot for weight, slot in zip(weights, value_matrix.double(), strict=True)))
    return torch.stack([torch.as_tensor(row) for row in rows])
