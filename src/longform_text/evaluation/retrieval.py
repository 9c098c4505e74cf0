"""Retrieval by brute force: how well each document answers each query, and nDCG and recall.

What ranks documents is a function from a slice of the queries to scores (q, N), larger for better documents and -inf
for those that are not found at all: cosines of vectors, or another search.

Axes: N documents, Q queries, D embedding size.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from longform.errors import ConfigurationError, DataError, require

QUERIES_AT_A_TIME = 512
RECALLED_AT = (1, 10, 100)

Ranker = Callable[[slice], np.ndarray]


@dataclass(frozen=True)
class RetrievalScores:
    """Means over queries, from 0 to 1: nDCG at ``depth``, and recall at several depths; ``each``: nDCG of each (Q,)."""

    ndcg: float
    depth: int
    recall: dict[int, float]
    each: np.ndarray = field(repr=False, compare=False)


def cosine_ranker(queries: np.ndarray, documents: np.ndarray, starts: np.ndarray | None = None) -> Ranker:
    """Cosines of ``queries`` (Q, D) and ``documents`` (N, D).

    ``starts`` (N,): where rows of a document are chunks of it, one after the other, the first row of each document; a
    document is then as good as its best chunk.
    """
    unit = _unit(documents).T
    starts = np.arange(len(documents)) if starts is None else starts
    return lambda some: np.maximum.reduceat(_unit(queries[some]) @ unit, starts, axis=1)


def best_first(scores: np.ndarray) -> np.ndarray:
    """Documents of each query by falling ``scores`` (q, N) -> (q, N); equal scores keep their order."""
    return np.argsort(-scores, axis=1, kind="stable")


def retrieval_scores(
    queries: np.ndarray,
    documents: np.ndarray,
    relevant: Sequence[Set[int]],
    *,
    depth: int = 10,
    recall_at: Sequence[int] = RECALLED_AT,
    starts: np.ndarray | None = None,
) -> RetrievalScores:
    """``ranking_scores`` of the cosines of ``queries`` (Q, D) and ``documents`` (N, D); ``starts``: ``cosine_ranker``.

    Raises DataError where ``relevant`` has not as many entries as there are queries, and as ``ranking_scores`` does.
    """
    if len(relevant) != len(queries) or len(queries) == 0:
        raise DataError(
            f"{len(queries)} queries for {len(relevant)} sets of relevant documents; at least one is needed"
        )
    count = len(documents) if starts is None else len(starts)
    ranker = cosine_ranker(queries, documents, starts)
    return ranking_scores(ranker, relevant, documents=count, depth=depth, recall_at=recall_at)


def ranking_scores(
    ranker: Ranker,
    relevant: Sequence[Set[int]],
    *,
    documents: int,
    depth: int = 10,
    recall_at: Sequence[int] = RECALLED_AT,
) -> RetrievalScores:
    """How high ``ranker`` puts the right ones among ``documents``; ``relevant``: of each query, their numbers.

    nDCG is binary: gain 1 for a relevant document, discounted by log2(rank + 1), over the best that is possible.
    Equal scores keep the documents' order. Raises DataError for a query without a relevant document,
    ConfigurationError for a depth below 1.
    """
    if depth < 1:
        raise ConfigurationError(f"depth is {depth}; it is 1 or more")
    for place, rows in enumerate(relevant):
        if not rows or min(rows) < 0 or max(rows) >= documents:
            raise DataError(f"query {place}: its relevant documents {sorted(rows)} are not rows of {documents}")
    truth = {str(place): {str(row): 1 for row in rows} for place, rows in enumerate(relevant)}
    measures = {f"ndcg_cut.{depth}", *(f"recall.{at}" for at in recall_at)}
    evaluator = require("pytrec_eval", extra="train").RelevanceEvaluator(truth, measures)
    run = _run(ranker, len(relevant), min(documents, max(depth, *recall_at)))
    found = list(evaluator.evaluate(run).values())

    def values(name: str) -> np.ndarray:
        return np.array([scores[name] for scores in found])

    each = values(f"ndcg_cut_{depth}")
    recall = {at: float(values(f"recall_{at}").mean()) for at in recall_at}
    return RetrievalScores(float(each.mean()), depth, recall, each)


def _run(ranker: Ranker, queries: int, deepest: int) -> dict[str, dict[str, float]]:
    """The ``deepest`` best documents of each query that are found, as pytrec_eval takes them: in order, ties too."""
    run = {}
    for first in range(0, queries, QUERIES_AT_A_TIME):
        scores = ranker(slice(first, min(queries, first + QUERIES_AT_A_TIME)))
        for place, rows in enumerate(best_first(scores)[:, :deepest], start=first):
            found = rows[~np.isneginf(scores[place - first, rows])]
            run[str(place)] = {str(row): float(deepest - rank) for rank, row in enumerate(found)}
    return run


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
