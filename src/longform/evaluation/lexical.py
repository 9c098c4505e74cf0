"""BM25: documents ranked by the words that they share with a query, the humble rival of vectors of long documents."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from longform.errors import DataError, require
from longform.evaluation.retrieval import Ranker

STOP_WORDS = "en"


def bm25_ranker(questions: Sequence[str], documents: Sequence[str]) -> Ranker:
    """BM25 of whole ``documents``, as package bm25s has it (k1 1.5, b 0.75, no stemming), without English stop words.

    A document that shares no word with a query is not found by it. Raises DataError where no document has a word.
    """
    package = require("bm25s", extra="bm25")
    words = package.tokenize(list(documents), stopwords=STOP_WORDS, show_progress=False)
    if not words.vocab:
        raise DataError(f"no word to search for in the {len(documents)} documents: BM25 leaves out English stop words")
    index = package.BM25()
    index.index(words, show_progress=False)
    asked = package.tokenize(list(questions), stopwords=STOP_WORDS, return_ids=False, show_progress=False)

    def scores(some: slice) -> np.ndarray:
        return np.stack([_scores(index, each, len(documents)) for each in asked[some]])

    return scores


def _scores(index: Any, words: list[str], documents: int) -> np.ndarray:
    """Scores of one query: float32 (N,), -inf for a document that has none of its ``words``."""
    found = index.get_scores(words) if words else np.zeros(documents, np.float32)
    return np.where(found > 0, found, -np.inf)
