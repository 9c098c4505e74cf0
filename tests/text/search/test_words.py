"""BM25 over parts: as the formula has it, and as the package bm25s ranks."""

import math
from typing import Any

import bm25s
import numpy as np

from longform_text.search.words import K1, B, Postings, bm25, postings_of, words_of

TEXTS = ["the mill is sold", "the old old mill", "a museum of the river", "river river river", "mill"]


def by_formula(question: str, texts: list[str]) -> list[float]:
    found = [words_of(text) for text in texts]
    mean = sum(map(len, found)) / len(found)
    scores = []
    for words in found:
        score = 0.0
        for word in dict.fromkeys(words_of(question)):
            having = sum(word in other for other in found)
            often = words.count(word)
            weight = K1 * (1 - B + B * len(words) / mean)
            score += math.log(1 + (len(found) - having + 0.5) / (having + 0.5)) * often / (often + weight)
        scores.append(score)
    return scores


def parts_of(texts: list[str], sizes: list[int]) -> tuple[list[tuple[Postings, int]], np.ndarray]:
    parts, lengths, first = [], [], 0
    for size in sizes:
        postings, own = postings_of(texts[first : first + size])
        parts.append((postings, first))
        lengths.append(own)
        first += size
    return parts, np.concatenate(lengths)


def test_the_formula_however_texts_are_parted() -> None:
    for question in ("Old mill!", "the river", "nothing here", "mill mill"):
        for sizes in ([5], [2, 3], [1, 1, 1, 1, 1]):
            parts, lengths = parts_of(TEXTS, sizes)
            found = bm25(question, parts, np.arange(5), lengths)
            np.testing.assert_allclose(found, by_formula(question, TEXTS), rtol=1e-12)


def test_passages_in_documents_and_passages_that_do_not_count() -> None:
    parts, lengths = parts_of([TEXTS[0], "gone mill mill", TEXTS[1], TEXTS[2]], [2, 2])
    found = bm25("old mill", parts, np.array([0, -1, 0, 1]), lengths)
    np.testing.assert_allclose(found, by_formula("old mill", [f"{TEXTS[0]} {TEXTS[1]}", TEXTS[2]]), rtol=1e-12)


def test_the_ranking_is_that_of_bm25s() -> None:
    parts, lengths = parts_of(TEXTS, [5])
    how: Any = {"stopwords": None, "show_progress": False, "token_pattern": r"\b\w+\b"}
    package = bm25s.BM25()
    package.index(bm25s.tokenize(TEXTS, **how), show_progress=False)
    for question in ("old mill", "river", "museum sold"):
        asked = bm25s.tokenize(question, return_ids=False, **how)[0]
        np.testing.assert_allclose(bm25(question, parts, np.arange(5), lengths), package.get_scores(asked), rtol=1e-5)


def test_words_of_other_letters_and_long_ones() -> None:
    postings, _ = postings_of(["Straße ÜBER naïve", "x" * 40, ""])
    assert [len(postings.of(word)) for word in ("straße", "über", "naïve", "x" * 32, "x" * 31, "nowhere")] == [
        1, 1, 1, 1, 0, 0
    ]  # fmt: skip
