"""Passages ranked for a question: by the nearness of vectors and by words (BM25), each as a share of the best.

Axes: N passages, G documents, D embedding size.
"""

import math
import sqlite3
from collections.abc import Iterable
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
    """Passages that are searched, as of a number of ``changes``.

    ``parts``, ``passages`` and ``documents`` (N,): numbers of rows in the index, ascending; ``vectors`` (N, D).
    """

    changes: int
    parts: np.ndarray
    passages: np.ndarray
    documents: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, database: sqlite3.Connection, before: Self | None = None) -> Self:
        """The passages of an index as it is now; what was there ``before`` is not read again."""
        identity, changes = store.about(database)
        if before and before.changes == changes:
            return before
        last = int(before.parts[-1]) if before and len(before.parts) else -1
        new = cls._after(database, last, identity.get("dimensions") or 1, changes)
        if not before or last < 0:
            return new
        kept = np.isin(before.parts, [id for (id,) in database.execute("SELECT id FROM vectors")])
        pairs: Any = zip(before[1:], new[1:], strict=True)
        return cls(changes, *(np.concatenate([old[kept], added]) for old, added in pairs))

    @classmethod
    def _after(cls, database: sqlite3.Connection, last: int, features: int, changes: int) -> Self:
        """The passages of the parts after the ``last`` one."""
        query = "SELECT id, first, document, vectors FROM vectors WHERE id > ? ORDER BY id"
        rows = database.execute(query, (last,)).fetchall()
        sizes = np.array([len(blob) // (4 * features) for *_, blob in rows], np.int64)
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        parts, first, documents = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3).repeat(sizes, axis=0).T
        vectors = np.frombuffer(b"".join(blob for *_, blob in rows), np.float32).reshape(-1, features)
        return cls(changes, parts, first + inside, documents, vectors)

    def best(
        self,
        database: sqlite3.Connection,
        question: str,
        vector: np.ndarray,
        k: int,
        passages: int,
        files: set[str] | None,
    ) -> list[Hit]:
        """The best ``passages`` of each of the ``k`` best documents, of ``files`` (None: all); ``vector`` (D,) is the
        question's.

        A document's score is the mean of that of its nearest passage and of that of all its words (BM25), each as a
        share of the best document's; so is a passage's among passages.
        """
        within = self if files is None else self._within(database, files)
        if not len(within.passages):
            return []
        words, most = asked_words(question), SCORED if files is None else -1
        documents, groups = np.unique(within.documents, return_inverse=True)
        near = within.vectors @ vector
        own_words = bm25(database, "passage_words", words, within.passages, most)
        nearest = np.full(len(documents), -np.inf)
        np.maximum.at(nearest, groups, near)
        ranked = fused_scores(near, own_words)
        fused = fused_scores(nearest, bm25(database, "document_words", words, documents, most))
        asked, hits = Asked.of(database, words), list[Hit]()
        for at in best_first(fused)[:k]:
            fits = bool(nearest[at] + COVERED * asked.share(database, int(documents[at])) >= FITS)
            own = np.flatnonzero(groups == at)
            for passage in within.passages[own[best_first(ranked[own])][:passages]].tolist():
                hits.append(_hit(database, passage, asked.rare, float(fused[at]), fits=fits))
        return hits

    def _within(self, database: sqlite3.Connection, files: set[str]) -> Self:
        documents = database.execute("SELECT id, file FROM documents")
        kept = np.isin(self.documents, [id for id, name in documents if name in files])
        columns: Any = self[1:]
        return type(self)(self.changes, *(column[kept] for column in columns))


class Asked(NamedTuple):
    """The words of a question, each with a weight, the larger the fewer documents have it; those that few have."""

    weights: dict[str, float]
    rare: set[str]

    @classmethod
    def of(cls, database: sqlite3.Connection, words: list[str]) -> Self:
        """The words as the documents of an index have them."""
        (every,), having = database.execute("SELECT count(*) FROM documents").fetchone(), _having(database, words)
        weights = {word: math.log1p((every + 0.5) / (count + 0.5)) for word, count in having.items()}
        return cls(weights, {word for word, count in having.items() if count <= max(1, COMMON * every)})

    def share(self, database: sqlite3.Connection, document: int) -> float:
        """The share of the words, by their weights, that a document has."""
        there = _having(database, [*self.weights], document)
        return sum(self.weights[word] for word in there if there[word]) / (sum(self.weights.values()) or 1)


def bm25(
    database: sqlite3.Connection,
    table: str,
    words: Iterable[str],
    ids: np.ndarray,
    most: int = -1,
    above: float = ABOVE,
) -> np.ndarray:
    """BM25 (n,) of the rows ``ids`` (n,), ascending, of a table of words; 0 for those that have none, and, unless it is
    -1, for those that are not among the best ``most``. ``above``: weight of words in titles and headings.
    """
    scored = f"SELECT rowid, -bm25({table}, {above}, 1.0) AS score FROM {table}"
    query = f"{scored} WHERE {table} MATCH ? ORDER BY score DESC LIMIT ?"
    found = np.array(database.execute(query, (_any(words), most)).fetchall(), np.float64).reshape(-1, 2)
    found, scores = found[np.isin(found[:, 0], ids)], np.zeros(len(ids))
    scores[np.searchsorted(ids, found[:, 0])] = found[:, 1]
    return scores


def _any(words: Iterable[str]) -> str:
    """FTS5's expression for rows that have any of the words."""
    return " OR ".join(f'"{word}"' for word in words) or '""'


def _having(database: sqlite3.Connection, words: list[str], document: int | None = None) -> dict[str, int]:
    """How many documents have each word; of one ``document``, whether it has."""
    query = "SELECT count(*) FROM document_words WHERE document_words MATCH ?" + " AND rowid = ?" * (
        document is not None
    )
    more = () if document is None else (document,)
    return {word: database.execute(query, (_any([word]), *more)).fetchone()[0] for word in words}


def _hit(database: sqlite3.Connection, passage: int, words: set[str], score: float, *, fits: bool) -> Hit:
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
    for word in words_of(text):
        if word.form not in words:
            continue
        if found and word.start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], word.end))
        else:
            found.append((word.start, word.end))
    return found


def best_first(scores: np.ndarray) -> np.ndarray:
    """Places of ``scores`` (N,), the highest first, of equal ones the first."""
    return np.argsort(-scores, kind="stable")


def fused_scores(near: np.ndarray, words: np.ndarray, share: float = WORDS) -> np.ndarray:
    """Scores (N,) by nearness and by BM25, each as a share of its largest: a convex combination (Bruch et al. 2023).

    Unlike ranks, they let nearness count little where all is about as near, as in a language unknown to the model.
    """
    by_near, by_words = (scores / max(np.abs(scores).max(), 1e-12) for scores in (near, words))
    return (1 - share) * by_near + share * by_words
