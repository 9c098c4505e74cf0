"""Scores against scikit-learn, scipy, and worked examples."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from longform.errors import ConfigurationError, DataError
from longform_text.evaluation.classification import (
    classification_scores,
    multi_label_scores,
    regression_scores,
)
from longform_text.evaluation.embeddings import cosines, spearman
from longform_text.evaluation.retrieval import retrieval_scores

RANDOM = np.random.default_rng(0)


def test_spearman_is_scipys_with_ties() -> None:
    scores, truth = RANDOM.normal(size=50), RANDOM.integers(0, 6, size=50)
    assert spearman(scores, truth) == pytest.approx(spearmanr(scores, truth).statistic, abs=1e-12)
    assert spearman(np.arange(5.0), [1, 2, 3, 4, 9]) == pytest.approx(1)
    assert spearman(np.arange(5.0), [5, 4, 3, 2, 1]) == pytest.approx(-1)


def test_spearman_that_is_not_defined() -> None:
    with pytest.raises(DataError, match="all scores are equal"):
        spearman(np.arange(3.0), [1, 1, 1])
    for few in (0, 1):
        with pytest.raises(DataError, match=f"{few} pairs have no order"):
            spearman(np.arange(few), np.arange(few))
    with pytest.raises(DataError, match="NaN"):
        spearman(np.array([1.0, float("nan")]), [1, 2])
    with pytest.raises(DataError, match="3 scores for 2"):
        spearman(np.arange(3.0), [1, 2])


def test_similarity() -> None:
    first = np.array([[1.0, 0], [1, 1], [0, 2]])
    second = np.array([[2.0, 0], [1, 0], [3, 0]])
    assert spearman(cosines(first, second), [5, 3, 1]) == pytest.approx(1)
    assert cosines(first, second) == pytest.approx([1, math.sqrt(0.5), 0])
    with pytest.raises(DataError, match="row by row"):
        cosines(first, second[:2])


def test_ndcg_is_scikit_learns() -> None:
    queries, documents = RANDOM.normal(size=(13, 7)), RANDOM.normal(size=(40, 7))
    relevant = [set(RANDOM.choice(40, size=size, replace=False).tolist()) for size in RANDOM.integers(1, 15, size=13)]
    scores = retrieval_scores(queries, documents, relevant, depth=10, recall_at=(1, 5, 100))
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    truth = np.array([[row in right for row in range(40)] for right in relevant], float)
    assert scores.ndcg == pytest.approx(ndcg_score(truth, unit(queries) @ unit(documents).T, k=10), abs=1e-12)
    assert scores.recall[100] == 1
    assert scores.recall[1] <= scores.recall[5] < 1


def test_retrieval_by_hand() -> None:
    documents = np.eye(3)
    queries = np.array([[3.0, 2, 1], [3, 2, 1]])
    scores = retrieval_scores(queries, documents, [{0}, {2}], depth=2, recall_at=(1, 2, 3))
    assert scores.ndcg == pytest.approx(0.5)
    assert scores.recall == {1: 0.5, 2: 0.5, 3: 1.0}
    assert retrieval_scores(queries, documents, [{1}, {1}]).ndcg == pytest.approx(1 / math.log2(3))


@pytest.mark.parametrize("relevant", [[set()], [{3}], [{-1}], []])
def test_retrieval_without_a_right_document(relevant: list[set[int]]) -> None:
    with pytest.raises(DataError):
        retrieval_scores(np.ones((1, 2)), np.ones((3, 2)), relevant)


def test_classification_by_hand() -> None:
    logits = np.eye(4)[[0, 0, 1, 1, 1]]
    scores = classification_scores(logits, np.array([0, 1, 1, 1, 0]), ["a", "b", "c", "d"])
    assert scores.accuracy == pytest.approx(0.6)
    assert scores.f1 == {"a": pytest.approx(0.5), "b": pytest.approx(2 / 3)}
    assert scores.macro_f1 == pytest.approx((0.5 + 2 / 3) / 2)
    assert scores.confusion == [[1, 1, 0, 0], [1, 2, 0, 0], [0] * 4, [0] * 4]


def test_one_class_only() -> None:
    scores = classification_scores(np.array([[2.0, 1], [2, 1]]), np.array([0, 0]), ["a", "b"])
    assert (scores.accuracy, scores.macro_f1) == (1, 1)


def test_multi_label_and_regression() -> None:
    scores = multi_label_scores(np.array([[1.0, -1], [1, 1]]), np.array([[1, 0], [1, 0]]))
    assert scores.subset_accuracy == 0.5
    assert scores.micro_f1 == pytest.approx(0.8)
    assert scores.macro_f1 == pytest.approx(0.5)
    found = regression_scores(np.array([[1.0], [2], [4]]), np.array([2.0, 4, 8]))
    assert found.pearson == found.spearman == pytest.approx(1)
    assert found.mean_squared_error == pytest.approx(7)
    constant = regression_scores(np.ones(3), np.array([1.0, 2, 3]))
    assert math.isnan(constant.spearman)


def test_numbers_of_predictions_and_labels_differ() -> None:
    with pytest.raises(DataError, match="2 predictions for 1 labels"):
        classification_scores(np.ones((2, 2)), np.array([0]), ["a", "b"])
    with pytest.raises(DataError, match="0 predictions for 0 labels"):
        multi_label_scores(np.ones((0, 2)), np.ones((0, 2)))


def test_a_depth_is_one_or_more() -> None:
    with pytest.raises(ConfigurationError, match="depth is 0"):
        retrieval_scores(np.eye(2), np.eye(2), [{0}, {1}], depth=0)


def test_a_document_is_as_good_as_its_best_chunk() -> None:
    queries = np.array([[1.0, 0.0], [0.0, 1.0]])
    chunks = np.array([[0.1, 1.0], [1.0, 0.1], [0.6, 0.6], [0.2, 0.9]])  # two of document 0, one of 1, one of 2
    scores = retrieval_scores(queries, chunks, [{0}, {0}], starts=np.array([0, 2, 3]), recall_at=(1,))
    assert (scores.ndcg, scores.recall[1]) == (1.0, 1.0)
    assert retrieval_scores(queries, chunks, [{1}, {1}], starts=np.array([0, 2, 3]), recall_at=(1,)).recall[1] == 0
    with pytest.raises(DataError, match="are not rows of 3"):
        retrieval_scores(queries, chunks, [{3}, {0}], starts=np.array([0, 2, 3]))
