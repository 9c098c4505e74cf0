"""Search by words: BM25 over parts of an index, of which each has the passages of every word.

Axes: m passages of a part, W words, P pairs of a word and a passage that has it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

WORD = re.compile(r"\w+")
KEPT = "S32"  # a word's first 32 bytes in UTF-8
K1, B = 1.5, 0.75  # bm25s' and most others' (Robertson and Zaragoza 2009)


class Postings(NamedTuple):
    """Which passages have a word: ``words`` (W,) sorted; of word w the pairs ``begins[w]`` to ``begins[w + 1]`` of
    ``pairs`` (P, 2), int32, are a passage and how often it has the word.
    """

    words: np.ndarray
    begins: np.ndarray
    pairs: np.ndarray

    def of(self, word: str) -> np.ndarray:
        """The pairs (p, 2) of a word."""
        key = _key(word)
        at = int(np.searchsorted(self.words, key))
        if at == len(self.words) or self.words[at] != key:
            return self.pairs[:0]
        return self.pairs[self.begins[at] : self.begins[at + 1]]


def words_of(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return WORD.findall(text.lower())


def postings_of(texts: Sequence[str]) -> tuple[Postings, np.ndarray]:
    """Postings of the ``texts`` (m,) of a part, and the number of words in each."""
    found = [words_of(text) for text in texts]
    lengths = np.array([*map(len, found)], np.int32)
    keys = np.array([_key(word) for words in found for word in words], KEPT)
    words, places = np.unique(keys, return_inverse=True)
    rows = np.repeat(np.arange(len(texts), dtype=np.int64), lengths)
    pairs, counts = np.unique(places.astype(np.int64) * len(texts) + rows, return_counts=True)
    begins = np.searchsorted(pairs, np.arange(len(words) + 1, dtype=np.int64) * len(texts))
    return Postings(words, begins, np.stack([pairs % len(texts), counts], axis=1).astype(np.int32)), lengths


def _key(word: str) -> bytes:
    return word.encode()[:32]


def bm25(question: str, parts: Iterable[tuple[Postings, int]], groups: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """BM25 (G,) of G groups of passages for a question: of each passage by itself, or of documents.

    ``parts``: the postings of each part, and the number of its first passage. ``groups`` (N,): the group of each
    passage, -1 for one that is not searched. ``lengths`` (N,): words of each passage.
    """
    searched = groups >= 0
    size = np.bincount(groups[searched], lengths[searched])
    weights = K1 * (1 - B + B * size / max(size.mean(), 1e-9)) if len(size) else size
    scores, parts = np.zeros(len(size)), list(parts)
    for word in dict.fromkeys(words_of(question)):
        pairs = [(first + found[:, 0], found[:, 1]) for each, first in parts if len(found := each.of(word))]
        if not pairs:
            continue
        rows, counts = (np.concatenate(column) for column in zip(*pairs, strict=True))
        kept = searched[rows]
        often = np.bincount(groups[rows[kept]], counts[kept], minlength=len(size))
        having = np.count_nonzero(often)
        rarity = np.log1p((len(size) - having + 0.5) / (having + 0.5))
        scores += rarity * often / (often + weights)
    return scores
