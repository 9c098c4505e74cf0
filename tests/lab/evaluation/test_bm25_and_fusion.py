"""BM25, fused rankings and intervals, against their formulas and by hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longform.errors import DataError
from longform_lab.evaluation.comparison import bootstrap
from longform_lab.evaluation.retrieval_comparison import bm25_ranker, fused_ranker
from longform_lab.evaluation.run import evaluate
from longform_text.evaluation.retrieval import QUERIES_AT_A_TIME, ranking_scores

DOCUMENTS = ["the far bridge is far", "a near bridge over the long river", "good", "bad river"]
EVERY = slice(None)


def test_bm25_is_its_formula() -> None:
    words = [["far", "bridge", "far"], ["near", "bridge", "over", "long", "river"], ["good"], ["bad", "river"]]
    mean = sum(map(len, words)) / 4

    def weight(word: str, document: list[str]) -> float:
        having = sum(word in each for each in words)
        rarity = math.log(1 + (4 - having + 0.5) / (having + 0.5))
        count = document.count(word)
        return rarity * count / (count + 1.5 * (0.25 + 0.75 * len(document) / mean))

    expected = np.array([[weight("far", each) + weight("bridge", each) for each in words]])
    found = bm25_ranker(["The far, far bridge?"], DOCUMENTS)(EVERY)
    expected += np.array([[weight("far", each) for each in words]])  # the query has it twice
    assert found == pytest.approx(np.where(expected > 0, expected, -np.inf), rel=1e-5)


def test_what_shares_no_word_is_not_found() -> None:
    ranker = bm25_ranker(["zebra", "the of", "", "river"], DOCUMENTS)
    assert np.isneginf(ranker(EVERY)).sum(axis=1).tolist() == [4, 4, 4, 2]
    scores = ranking_scores(ranker, [{0}, {0}, {0}, {3}], documents=4, recall_at=(1,))
    assert scores.each.tolist() == [0, 0, 0, 1]
    with pytest.raises(DataError, match="no word to search for in the 2 documents"):
        bm25_ranker(["river"], ["the", "of a"])


def test_fusion_is_the_sum_of_reciprocal_ranks() -> None:
    first = np.array([[3.0, 2.0, 1.0]])
    second = np.array([[-np.inf, 1.0, 2.0]])
    found = fused_ranker(lambda some: first[some], lambda some: second[some])(EVERY)
    assert found == pytest.approx(np.array([[1 / 61, 1 / 62 + 1 / 62, 1 / 63 + 1 / 61]]))


def test_queries_are_ranked_some_at_a_time() -> None:
    queries = QUERIES_AT_A_TIME + 3
    scores = np.random.default_rng(0).normal(size=(queries, 5))
    best = scores.argmax(axis=1)
    found = ranking_scores(lambda some: scores[some], [{int(row)} for row in best], documents=5)
    assert found.each.tolist() == [1.0] * queries


def test_an_interval_covers_what_it_should() -> None:
    values = np.random.default_rng(1).normal(2.0, 1.0, size=400)
    mean, low, high = bootstrap(values)
    assert mean == pytest.approx(values.mean())
    assert (low, high) == pytest.approx((mean - 1.96 * values.std() / 20, mean + 1.96 * values.std() / 20), abs=0.01)
    assert bootstrap(np.ones(3)) == (1, 1, 1)


def test_bm25_and_fused_rows_stand_beside_the_dense_ones(longform_folder: Path, bert_folder: Path) -> None:
    rows = [{"id": str(place), "text": text} for place, text in enumerate(DOCUMENTS)]
    queries = [{"query": "the river", "relevant": "1"}, {"query": "zebra good", "relevant": "2"}]
    options: dict[str, Any] = {"longform": longform_folder, "original": bert_folder, "progress": False}
    found = evaluate("retrieval", queries, documents=rows, bm25=True, depth=3, **options)
    dense = ["longform", "original, cut", "original, chunks averaged"]
    assert [record["name"] for record in found.records] == [*dense, "BM25", *(f"{name} + BM25" for name in dense)]
    assert [record["compared_with"] for record in found.records] == [dense[0]] * 4 + ["BM25"] * 3
    assert found.records[3]["per_query"] == pytest.approx([100 / math.log2(3), 100])
    for record in found.records:
        assert record["ndcg@3"] == pytest.approx(np.mean(record["per_query"]))
        low, high = record["interval"]
        assert low <= record["ndcg@3"] <= high
    assert found.records[0]["difference"] == (0, 0, 0)
    assert "original, cut + BM25" in found.report.split("intervals over queries")[1]
