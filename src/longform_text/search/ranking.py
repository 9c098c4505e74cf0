"""Passages ranked for a question: by the nearness of vectors and by words (BM25), fused by reciprocal ranks.

Axes: N passages, G documents, D embedding size.
"""

from typing import NamedTuple, Self

import numpy as np

from longform_text.search.store import Part, Row, Store
from longform_text.search.words import WORD, bm25, words_of

FUSION = 60  # of reciprocal ranks (Cormack, Clarke and Buettcher 2009)
COMMON = 1 / 4  # of all documents: words that more of them have are not marked


class Hit(NamedTuple):
    """A passage that was found. ``place``: its page or line, or characters from-to; ``marks``: characters from-to in
    ``passage`` of the question's words; ``score``: of the document, a sum of reciprocal ranks.
    """

    document: str
    title: str
    place: str
    passage: str
    marks: list[tuple[int, int]]
    score: float


class Searched(NamedTuple):
    """The passages that are searched, of all parts of an index.

    ``firsts``: number of each part's first passage; ``rows`` (N,): numbers of those that count, others are of files
    that have changed. By number: ``own``, its place in ``rows``, ``groups``, its document, both -1 where it does not
    count, and ``lengths``, its words.
    """

    parts: list[Part]
    firsts: list[int]
    rows: np.ndarray
    own: np.ndarray
    groups: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, store: Store, before: Self | None = None) -> Self:
        """The passages of a store as it is now; parts that were searched ``before`` are not opened again."""
        parts = store.parts({part.number: part for part in before.parts} if before else {})
        firsts = np.cumsum([0, *map(len, parts)]).tolist()
        groups, documents = [np.empty(0, np.int64)], 0
        for part in parts:
            held = np.array([store.holds(name, part.number) for name in part.files])
            numbers = documents + part.document_of
            groups.append(np.where(held[part.file_of], numbers, -1))
            documents += len(part.documents)
        every = np.concatenate(groups)
        rows = np.flatnonzero(every >= 0)
        every[rows] = np.unique(every[rows], return_inverse=True)[1]
        own = np.full(len(every), -1)
        own[rows] = np.arange(len(rows))
        lengths = np.concatenate([np.empty(0, np.int32), *(part.lengths for part in parts)])
        return cls(parts, firsts[:-1], rows, own, every, lengths)

    def best(self, question: str, vector: np.ndarray, k: int, passages: int) -> list[Hit]:
        """The best ``passages`` of each of the ``k`` best documents; ``vector`` (D,) is the question's.

        A document's ranks are those of its nearest passage and of BM25 over its words; a passage's, of its own.
        """
        if not len(self.rows):
            return []
        near = np.concatenate([part.vectors @ vector for part in self.parts])[self.rows]
        groups = self.groups[self.rows]
        nearest = np.full(groups.max() + 1, -np.inf)
        np.maximum.at(nearest, groups, near)
        fused = reciprocal_ranks(nearest) + reciprocal_ranks(self.by_words(question, self.groups), above=0)
        each = reciprocal_ranks(near) + reciprocal_ranks(self.by_words(question, self.own), above=0)
        marked, hits = self._rare(question, len(nearest)), []
        for document in best_first(fused)[:k]:
            own = np.flatnonzero(groups == document)
            for at in own[best_first(each[own])][:passages]:
                row = self._row(int(self.rows[at]))
                marks = [found.span() for found in WORD.finditer(row.text) if found[0].lower() in marked]
                hits.append(Hit(row.document, row.title, row.place, row.text, marks, float(fused[document])))
        return hits

    def document(self, name: str) -> list[Row]:
        """The passages of a document in order; none where there is no document of that name."""
        rows = [
            part.row(int(at))
            for part, first in zip(self.parts, self.firsts, strict=True)
            if name in part.documents
            for at in np.flatnonzero(part.document_of == part.documents.index(name))
            if self.groups[first + at] >= 0
        ]
        return sorted(rows, key=lambda row: row.start)

    def by_words(self, question: str, groups: np.ndarray) -> np.ndarray:
        """BM25 of ``groups``, which are ``own`` for passages or ``groups`` for documents."""
        postings = [(part.postings, first) for part, first in zip(self.parts, self.firsts, strict=True)]
        return bm25(question, postings, groups, self.lengths)

    def _rare(self, question: str, documents: int) -> set[str]:
        """The question's words that few documents have."""
        having = {
            word: sum(len({*part.document_of[part.postings.of(word)[:, 0]]}) for part in self.parts)
            for word in words_of(question)
        }
        return {word for word, count in having.items() if count <= max(1, COMMON * documents)}

    def _row(self, number: int) -> Row:
        at = int(np.searchsorted(self.firsts, number, side="right")) - 1
        return self.parts[at].row(number - self.firsts[at])


def best_first(scores: np.ndarray) -> np.ndarray:
    """Places of ``scores`` (N,), the highest first, of equal ones the first."""
    return np.argsort(-scores, kind="stable")


def reciprocal_ranks(scores: np.ndarray, above: float = -np.inf) -> np.ndarray:
    """1 / (60 + rank) of each of ``scores`` (N,), ranks from 1 for the highest; 0 for those that are not ``above``."""
    ranks = np.empty(len(scores))
    ranks[best_first(scores)] = np.arange(1, len(scores) + 1)
    return np.where(scores > above, 1 / (FUSION + ranks), 0.0)
