"""Scores of classification, multi-label classification and regression. Axes: N texts, L labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from longform.errors import DataError, require
from longform_text.evaluation.embeddings import spearman


@dataclass(frozen=True)
class ClassificationScores:
    """``accuracy`` and ``macro_f1`` from 0 to 1 over the labels that occur in truth or prediction.

    ``confusion``: counts (L, L), rows truth, columns prediction, in the order of ``labels``. ``f1``: one a label.
    """

    accuracy: float
    macro_f1: float
    labels: list[str]
    f1: dict[str, float]
    confusion: list[list[int]] = field(repr=False)


@dataclass(frozen=True)
class MultiLabelScores:
    """From 0 to 1: ``subset_accuracy`` (all labels of a text right), F1 over decisions (micro), over labels (macro)."""

    subset_accuracy: float
    micro_f1: float
    macro_f1: float


@dataclass(frozen=True)
class RegressionScores:
    """Pearson and Spearman correlation (NaN where a side is constant) and mean squared error."""

    pearson: float
    spearman: float
    mean_squared_error: float


def classification_scores(logits: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> ClassificationScores:
    """Scores of the largest of ``logits`` (N, L) against ``truth`` long (N,)."""
    metrics = require("sklearn.metrics", extra="train")
    _same_rows(logits, truth)
    predicted = logits.argmax(axis=1)
    every = list(range(len(labels)))
    occurring = sorted({*truth.tolist(), *predicted.tolist()})
    f1 = metrics.f1_score(truth, predicted, labels=every, average=None, zero_division=0.0)
    return ClassificationScores(
        accuracy=float((predicted == truth).mean()),
        macro_f1=float(np.mean([f1[place] for place in occurring])),
        labels=list(labels),
        f1={labels[place]: float(f1[place]) for place in occurring},
        confusion=metrics.confusion_matrix(truth, predicted, labels=every).tolist(),
    )


def multi_label_scores(logits: np.ndarray, truth: np.ndarray) -> MultiLabelScores:
    """Scores of ``logits`` (N, L) > 0, a probability over one half, against ``truth`` 0/1 (N, L)."""
    metrics = require("sklearn.metrics", extra="train")
    _same_rows(logits, truth)
    predicted = logits > 0
    micro, macro = (
        float(metrics.f1_score(truth, predicted, average=average, zero_division=0.0)) for average in ("micro", "macro")
    )
    return MultiLabelScores(float((predicted == truth.astype(bool)).all(axis=1).mean()), micro, macro)


def regression_scores(predicted: np.ndarray, truth: np.ndarray) -> RegressionScores:
    """Scores of ``predicted`` (N,) or (N, 1) against ``truth`` (N,)."""
    predicted = predicted.reshape(-1).astype(np.float64)
    truth = truth.reshape(-1).astype(np.float64)
    _same_rows(predicted, truth)
    error = float(((predicted - truth) ** 2).mean())
    if predicted.std() == 0 or truth.std() == 0:
        return RegressionScores(float("nan"), float("nan"), error)
    return RegressionScores(float(np.corrcoef(predicted, truth)[0, 1]), spearman(predicted, truth), error)


def _same_rows(predicted: np.ndarray, truth: np.ndarray) -> None:
    if len(predicted) != len(truth) or len(truth) == 0:
        raise DataError(
            f"{len(predicted)} predictions for {len(truth)} labels; there must be as many, and one at least"
        )
