"""Retrieval by brute force: rank all documents for every query. Axes: Q queries, N documents, D embedding size."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from longform.errors import ConfigurationError, DataError

QUERIES_AT_A_TIME = 512


@dataclass(frozen=True)
class RetrievalScores:
    """Means over queries, from 0 to 1: nDCG at ``depth``, and recall at several depths."""

    ndcg: float
    depth: int
    recall: dict[int, float]


def retrieval_scores(
    queries: np.ndarray,
    documents: np.ndarray,
    relevant: Sequence[Set[int]],
    *,
    depth: int = 10,
    recall_at: Sequence[int] = (1, 10, 100),
) -> RetrievalScores:
    """Rank ``documents`` (N, D) by cosine for each of ``queries`` (Q, D); ``relevant``: rows of the right ones.

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
    for place, rows in enumerate(relevant):
        if not rows or min(rows) < 0 or max(rows) >= len(documents):
            raise DataError(f"query {place}: its relevant documents {sorted(rows)} are not rows of {len(documents)}")
    deepest = min(len(documents), max(depth, *recall_at))
    hits = np.concatenate(
        [
            _hits(queries[start : start + QUERIES_AT_A_TIME], documents, relevant[start:], deepest)
            for start in range(0, len(queries), QUERIES_AT_A_TIME)
        ]
    )
    counts = np.array([len(rows) for rows in relevant])
    discounts = 1 / np.log2(np.arange(max(depth, deepest)) + 2)
    gained = hits[:, :depth] @ discounts[: min(depth, deepest)]
    best = np.cumsum(discounts[:depth])[np.minimum(counts, depth) - 1]
    recall = {at: float((hits[:, :at].sum(axis=1) / counts).mean()) for at in recall_at}
    return RetrievalScores(float((gained / best).mean()), depth, recall)


def _hits(queries: np.ndarray, documents: np.ndarray, relevant: Sequence[Set[int]], deepest: int) -> np.ndarray:
    """(Q, deepest) of 0/1: is the document at that rank relevant."""
    scores = _unit(queries) @ _unit(documents).T
    ranking = np.argsort(-scores, axis=1, kind="stable")[:, :deepest]
    return np.array(
        [[int(row) in rows for row in ranked] for ranked, rows in zip(ranking, relevant, strict=False)], float
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
