"""Passages ranked for a question: by the nearness of vectors and by words (BM25), each as a share of the best.

Axes: N passages, G documents, D embedding size.
"""

import math
from collections.abc import Iterable, Sequence
from sqlite3 import Connection
from typing import Any, NamedTuple, Self

import numpy as np

from longform_text.search import store
from longform_text.search.reading import ENDS
from longform_text.search.words import asked_words, words_of

WORDS = 1 / 2  # share of words in scores; the rest is that of nearness
SCORED = 2000  # that get a score by words
ABOVE = 1.0  # weight of a word in titles and headings, beside 1 in the text
COMMON = 1 / 2  # of all documents: words that more of them have are not marked
COVERED, FITS = 1 / 4, 0.36  # a document fits where nearness and the share of the question's words come to that


class Hit(NamedTuple):
    """A passage that was found. ``file``: its document's; ``headings``: those above it; ``place``: the page or line of
    its first marked word, or characters from-to; ``marks``: characters from-to in ``passage`` of the question's words;
    ``score``: of the document, at most 1; ``fits``: whether the document may well answer.
    """

    document: str
    file: str
    title: str
    headings: str
    place: str
    passage: str
    marks: list[tuple[int, int]]
    score: float
    fits: bool


class Searched(NamedTuple):
    """Passages that are searched, as of a number of ``changes`` and the ``last`` row of vectors.

    ``passages`` and ``documents`` (N,): numbers of rows in the index; ``vectors`` (N, D).
    """

    changes: int
    last: int
    passages: np.ndarray
    documents: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, database: Connection, before: Self | None = None) -> Self:
        """The passages of an index as it is now; what was there ``before`` is not read again."""
        identity, changes = store.about(database)
        if before and before.changes == changes:
            return before
        features, last = identity.get("dimensions") or 1, before.last if before else 0
        rows, data = list[tuple[int, int, int, int]](), bytearray()
        query = "SELECT id, first, document, vectors FROM vectors WHERE id > ? ORDER BY id"
        for *numbers, vectors in database.execute(query, (last,)):
            rows.append((*numbers, len(vectors) // (4 * features)))
            data += vectors
        ids, firsts, documents, sizes = np.array(rows, np.int64).reshape(-1, 4).T
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        vectors = np.frombuffer(data, np.float32).reshape(-1, features)
        new: Any = ((firsts.repeat(sizes) + inside), documents.repeat(sizes), vectors)
        if before and len(before.passages):
            old = before.within([id for (id,) in database.execute("SELECT id FROM documents")])[2:]
            new = map(np.concatenate, zip(old, new, strict=True))
        return cls(changes, int(ids.max(initial=last)), *new)

    def within(self, documents: Sequence[int]) -> Self:
        """The passages of some documents."""
        kept, columns = np.isin(self.documents, documents), (self.passages, self.documents, self.vectors)
        return self if kept.all() else type(self)(self.changes, self.last, *(column[kept] for column in columns))

    def best(
        self, database: Connection, question: str, vector: np.ndarray, k: int, passages: int, files: set[str] | None
    ) -> list[Hit]:
        """The best ``passages`` of each of the ``k`` best documents, of ``files`` (None: all); ``vector`` (D,) is the
        question's.

        A document's score is the mean of that of its nearest passage and of that of all its words (BM25), each as a
        share of the best document's; so is a passage's among passages.
        """
        rows = self
        if files is not None:
            named = database.execute("SELECT id, file FROM documents")
            rows = self.within([id for id, file in named if file in files])
        if not len(rows.passages):
            return []
        words, most = asked_words(question), SCORED if files is None else -1
        documents, groups = np.unique(rows.documents, return_inverse=True)
        near = rows.vectors @ vector
        ranked = fused_scores(near, bm25(database, "passage_words", words, rows.passages, most))
        nearest = np.full(len(documents), -np.inf)
        np.maximum.at(nearest, groups, near)
        fused = fused_scores(nearest, bm25(database, "document_words", words, documents, most))
        asked, hits = Asked.of(database, words), list[Hit]()
        for at in np.argsort(-fused, kind="stable")[:k]:
            fits = bool(nearest[at] + COVERED * asked.share(database, int(documents[at])) >= FITS)
            own = np.flatnonzero(groups == at)
            best = own[np.argsort(-ranked[own], kind="stable")][:passages]
            for passage in rows.passages[best].tolist():
                hits.append(_hit(database, passage, asked.rare, float(fused[at]), fits=fits))
        return hits


class Asked(NamedTuple):
    """The words of a question, each with a weight, the larger the fewer documents have it; those that few have."""

    weights: dict[str, float]
    rare: set[str]

    @classmethod
    def of(cls, database: Connection, words: list[str]) -> Self:
        """The words as the documents of an index have them."""
        (every,), having = database.execute("SELECT count(*) FROM documents").fetchone(), _having(database, words)
        weights = {word: math.log1p((every + 0.5) / (count + 0.5)) for word, count in having.items()}
        return cls(weights, {word for word, count in having.items() if count <= max(1, COMMON * every)})

    def share(self, database: Connection, document: int) -> float:
        """The share of the words, by their weights, that a document has."""
        there = _having(database, self.weights, document, document)
        return sum(self.weights[word] for word in there if there[word]) / (sum(self.weights.values()) or 1)


def bm25(
    database: Connection, table: str, words: Iterable[str], ids: np.ndarray, most: int = -1, above: float = ABOVE
) -> np.ndarray:
    """BM25 (n,) of the rows ``ids`` (n,), ascending, of a table of words; 0 for those that have none, and, unless it is
    -1, for those that are not among the best ``most``. ``above``: weight of words in titles and headings.
    """
    asked = " OR ".join(f'"{word}"' for word in words) or '""'
    scored = f"SELECT rowid, -bm25({table}, {above}, 1.0) AS score FROM {table}"
    query = f"{scored} WHERE {table} MATCH ? ORDER BY score DESC LIMIT ?"
    found = np.array(database.execute(query, (asked, most)).fetchall(), np.float64).reshape(-1, 2)
    found, scores = found[np.isin(found[:, 0], ids)], np.zeros(len(ids))
    scores[np.searchsorted(ids, found[:, 0])] = found[:, 1]
    return scores


def _having(database: Connection, words: Iterable[str], least: int = 0, most: int = 2**63 - 1) -> dict[str, int]:
    """How many documents, of the numbers ``least`` to ``most``, have each word."""
    query = "SELECT count(*) FROM document_words WHERE document_words MATCH ? AND rowid BETWEEN ? AND ?"
    return {word: database.execute(query, (f'"{word}"', least, most)).fetchone()[0] for word in words}


def _hit(database: Connection, passage: int, words: set[str], score: float, *, fits: bool) -> Hit:
    row = """SELECT name, file, title, unit, headings, number, start, "end", text FROM passages
        JOIN documents ON documents.id = document WHERE passages.id = ?"""
    name, file, title, unit, headings, number, start, end, text = database.execute(row, (passage,)).fetchone()
    marks = marked(text, words)
    place = place_of(unit, number, start, end, text[: marks[0][0]] if marks else "")
    return Hit(name, file, title, headings, place, text, marks, score, fits)


def place_of(unit: str, number: int, start: int, end: int, before: str = "") -> str:
    """The line or page after the text ``before``, of a passage that begins in line or page ``number``."""
    return f"{unit} {number + before.count(ENDS[unit])}" if unit else f"characters {start}-{end}"


def marked(text: str, words: set[str]) -> list[tuple[int, int]]:
    """Characters from-to of each of the ``words`` in a text; those that touch are one."""
    found = list[tuple[int, int]]()
    for start, end in ((word.start, word.end) for word in words_of(text) if word.form in words):
        before = found.pop() if found and start <= found[-1][1] else (start, end)
        found.append((before[0], max(before[1], end)))
    return found


def fused_scores(near: np.ndarray, words: np.ndarray, share: float = WORDS) -> np.ndarray:
    """Scores (N,) by nearness and by BM25, each as a share of its largest: a convex combination (Bruch et al. 2023).

    Unlike ranks, they let nearness count little where all is about as near, as in a language unknown to the model.
    """
    by_near, by_words = (scores / max(np.abs(scores).max(), 1e-12) for scores in (near, words))
    return (1 - share) * by_near + share * by_words
