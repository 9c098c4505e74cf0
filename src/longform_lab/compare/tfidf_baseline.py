"""The baseline of a comparison: logistic regression on TF-IDF of words and pairs, pixels, or ListOps' first symbol."""

import time
import warnings
from operator import itemgetter
from typing import Any

import numpy as np

from longform.errors import require
from longform_lab.compare.sequences import LabelledSequences, SequenceTask
from longform_text.evaluation.classification import ClassificationScores, classification_scores

MOST_FEATURES = 50_000
STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # inverse regularisation; chosen on the validation part


def logistic_regression(task: SequenceTask) -> tuple[ClassificationScores, ClassificationScores, dict[str, float]]:
    """Scores on validation and test part, and ``seconds``, ``cpu_seconds`` and ``features``.

    Whole texts are read, also what the architectures must cut.
    """
    linear = require("sklearn.linear_model", extra="train")
    began, cpu = time.perf_counter(), time.process_time()
    train, validation, test = _features(task)
    tried: list[tuple[float, float, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged: the best of those tried is taken all the same
        for strength in STRENGTHS:
            model = linear.LogisticRegression(C=strength, max_iter=300).fit(train, task.train.labels)
            tried.append((model.score(validation, task.validation.labels), strength, model))
    _, strength, model = max(tried, key=itemgetter(0))
    spent = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "features": train.shape[1],
        "strength": strength,
    }
    return _scores(model, validation, task.validation), _scores(model, test, task.test), spent


def _features(task: SequenceTask) -> list[Any]:
    if task.raw is not None and isinstance(task.raw[0], np.ndarray):
        return list(task.raw)
    texts = task.raw or [[" ".join(map(str, sequence)) for sequence in part.sequences] for part in task.parts]
    vectorizer = require("sklearn.feature_extraction.text", extra="train").TfidfVectorizer(
        token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True, max_features=MOST_FEATURES
    )
    return [vectorizer.fit_transform(texts[0]), *(vectorizer.transform(part) for part in texts[1:])]


def _scores(model: Any, features: Any, part: LabelledSequences) -> ClassificationScores:
    chances = np.full((len(part.labels), len(part.names)), -1.0, dtype=np.float32)
    chances[:, model.classes_] = model.predict_proba(features)
    return classification_scores(chances, part.labels, part.names)
