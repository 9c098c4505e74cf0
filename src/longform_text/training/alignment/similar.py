"""Batches of documents that are alike: hard negatives of each other."""

from collections.abc import Sequence

import numpy as np

from longform.errors import require

BEGINNING = 1000  # characters of a document, where it says what it is about
WORDS, TOPICS = 2**16, 64  # features of a document, and what is left of them


def similar_batches(texts: Sequence[str], size: int) -> list[list[int]]:
    """Places of ``texts`` in batches of ``size``: the first that is left, with those that are nearest to it.

    Nearness is the cosine of their beginnings' topics (latent semantic analysis: TF-IDF, then truncated SVD); ties go
    to the earlier one. Each place is in one batch; the last batches hold what nothing is near, and the last may be
    short. Raises MissingDependencyError without scikit-learn.
    """
    features = require("sklearn.feature_extraction.text", extra="train")
    algebra = require("sklearn.utils.extmath", extra="train")
    counts = features.HashingVectorizer(n_features=WORDS, alternate_sign=False, norm=None)
    weighted = features.TfidfTransformer(sublinear_tf=True).fit_transform(
        counts.transform(text.strip()[:BEGINNING] for text in texts)
    )
    # Not TruncatedSVD, which divides by a variance that is zero where texts are equal or have no words.
    directions, lengths, _ = algebra.randomized_svd(weighted, TOPICS, random_state=0)
    topics = directions * lengths
    topics /= np.linalg.norm(topics, axis=1, keepdims=True) + np.finfo(topics.dtype).tiny
    left, batches = np.arange(len(texts)), []
    while len(left):
        near = topics[left] @ topics[left[0]]
        near[0] = np.inf
        chosen = np.argsort(-near, kind="stable")[:size]
        batches.append(left[chosen].tolist())
        left = np.delete(left, chosen)
    return batches
