"""Scores of embeddings: similarity of pairs, agreement of two encoders, retrieval by brute force.

Axes: N texts, documents or pairs, Q queries, D embedding size.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from longform.errors import ConfigurationError, DataError, require

QUERIES_AT_A_TIME = 512


class Agreement(NamedTuple):
    """Cosines between two encoders' embeddings of the same texts."""

    mean: float
    lowest: float
    fifth_percentile: float


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


def similarity_spearman(first: np.ndarray, second: np.ndarray, truth: Sequence[float]) -> float:
    """Spearman between cosines of pairs ((N, D), (N, D)) and people's judgements (N,): the STS benchmark's measure."""
    return spearman(cosines(first, second), truth)


def agreement(first: np.ndarray, second: np.ndarray) -> Agreement:
    """How near two encoders' embeddings (N, D) of the same texts are."""
    values = cosines(first, second)
    return Agreement(float(values.mean()), float(values.min()), float(np.percentile(values, 5)))


@dataclass(frozen=True)
class RetrievalScores:
    """Means over queries, from 0 to 1: nDCG at ``depth``, and recall at several depths."""

    ndcg: float
    depth: int
    recall: dict[int, float]


def retrieval_scores(
    queries: np.ndarray, documents: np.ndarray, relevant: Sequence[Set[int]], *, depth: int = 10,
    recall_at: Sequence[int] = (1, 10, 100), starts: np.ndarray | None = None,
) -> RetrievalScores:  # fmt: skip
    """Rank ``documents`` (N, D) by cosine for each of ``queries`` (Q, D); ``relevant``: the numbers of the right ones.

    ``starts`` (N,): where rows of a document are chunks of it, one after the other, the first row of each document; a
    document is then as good as its best chunk.

    nDCG is binary: gain 1 for a relevant document, discounted by log2(rank + 1), over the best that is possible.
    Equal cosines keep the documents' order. Raises DataError for a query without a relevant document,
    ConfigurationError for a depth below 1.
    """
    if depth < 1:
        raise ConfigurationError(f"depth is {depth}; it is 1 or more")
    if len(relevant) != len(queries) or len(queries) == 0:
        raise DataError(
            f"{len(queries)} queries for {len(relevant)} sets of relevant documents; at least one is needed"
        )
    starts = np.arange(len(documents)) if starts is None else starts
    for place, rows in enumerate(relevant):
        if not rows or min(rows) < 0 or max(rows) >= len(starts):
            raise DataError(f"query {place}: its relevant documents {sorted(rows)} are not rows of {len(starts)}")
    deepest = min(len(starts), max(depth, *recall_at))
    truth = {str(place): {str(row): 1 for row in rows} for place, rows in enumerate(relevant)}
    measures = {f"ndcg_cut.{depth}", *(f"recall.{at}" for at in recall_at)}
    evaluator = require("pytrec_eval", extra="train").RelevanceEvaluator(truth, measures)
    run = {}
    for first in range(0, len(queries), QUERIES_AT_A_TIME):
        ranked = _ranking(queries[first : first + QUERIES_AT_A_TIME], documents, starts, deepest)
        for place, rows in enumerate(ranked, start=first):
            run[str(place)] = {str(row): float(deepest - rank) for rank, row in enumerate(rows)}  # in order, ties too
    found = list(evaluator.evaluate(run).values())

    def mean(name: str) -> float:
        return float(np.mean([scores[name] for scores in found]))

    return RetrievalScores(mean(f"ndcg_cut_{depth}"), depth, {at: mean(f"recall_{at}") for at in recall_at})


def _ranking(queries: np.ndarray, documents: np.ndarray, starts: np.ndarray, deepest: int) -> np.ndarray:
    """(Q, deepest): the best documents of each query, by cosine."""
    scores = np.maximum.reduceat(_unit(queries) @ _unit(documents).T, starts, axis=1)
    return np.argsort(-scores, axis=1, kind="stable")[:, :deepest]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
