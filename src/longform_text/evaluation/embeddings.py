"""Scores of embeddings: similarity of pairs.

Axes: N texts or pairs, D embedding size.
"""

from collections.abc import Sequence

import numpy as np

from longform.errors import DataError, require


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine of each row of ``first`` (N, D) with the same row of ``second`` (N, D) -> (N,); a zero row gives 0."""
    if first.shape != second.shape:
        raise DataError(f"embeddings of shapes {first.shape} and {second.shape} cannot be compared row by row")
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / np.maximum(lengths, 1e-12)


def spearman(scores: np.ndarray, truth: Sequence[float] | np.ndarray) -> float:
    """Rank correlation, from -1 to 1, of ``scores`` (N,) and ``truth`` (N,); ties share their mean rank.

    Raises DataError when either is constant (it has no ranks), for fewer than two, and where they differ in length.
    """
    truth = np.asarray(truth, dtype=np.float64)
    if truth.shape != scores.shape:
        raise DataError(f"{scores.shape[0]} scores for {truth.shape[0]} true values")
    if len(truth) < 2:
        raise DataError(f"{len(truth)} pairs have no order: the rank correlation needs two or more")
    if not np.isfinite(truth).all() or not np.isfinite(scores).all():
        raise DataError("a score is NaN or infinite: the rank correlation is not defined")
    if np.ptp(scores) == 0 or np.ptp(truth) == 0:
        raise DataError("all scores are equal: the rank correlation is not defined")
    stats = require("scipy.stats", extra="train")
    return float(stats.spearmanr(scores, truth).statistic)
