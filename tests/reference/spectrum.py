"""Slow, obvious twins of ``spectrum.py`` in float64: numpy's SVD of one map at a time, and one loop an axis.

n tokens, m valid tokens, j index of a singular value (from 1). Nothing here is imported by the fast functions, and
nothing of theirs is imported here.
"""

import math

import numpy as np
from torch import Tensor


def reference_singular_values(attention: Tensor, mask: Tensor | None = None) -> list[float]:
    """Singular values of one map (n, n), largest first, of the rows and columns that ``mask`` (n,) calls valid: m."""
    length = attention.shape[0]
    valid = [t for t in range(length) if mask is None or bool(mask[t])]
    rows = [[float(attention[i, j]) for j in valid] for i in valid]
    found = np.linalg.svd(np.array(rows, dtype=np.float64), compute_uv=False)
    return sorted((float(value) for value in found), reverse=True)


def reference_cumulative_spectrum(values: list[float]) -> list[float]:
    """For each j: the j largest values' sum over the sum of all (paper, Figure 1; not squared)."""
    return [sum(values[: j + 1]) / sum(values) for j in range(len(values))]


def reference_effective_rank(values: list[float]) -> float:
    """exp(-sum p log p) for p = value / sum of all; Roy and Vetterli 2007."""
    total = sum(values)
    return math.exp(-sum(value / total * math.log(value / total) for value in values if value > 0))


def reference_smallest_index(cumulative: list[float], share: float) -> int:
    """The first j, from 1, whose cumulative value is at least ``share``."""
    return next(j for j, value in enumerate(cumulative, start=1) if value >= share - 1e-12)


def reference_map_cosine(first: Tensor, second: Tensor) -> float:
    """<A, B> / (|A| |B|) with Frobenius products of two maps (n, n)."""
    pairs = [(float(first[i, j]), float(second[i, j])) for i in range(first.shape[0]) for j in range(first.shape[1])]
    product = sum(a * b for a, b in pairs)
    return product / math.sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))
