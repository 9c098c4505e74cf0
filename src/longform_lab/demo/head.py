"""A classification head that starts as a linear classifier of the embeddings of the model that it is for.

Fine-tuning from there has to move the encoder only, not to find a direction for each label first (Kumar et al. 2022,
"Fine-tuning can distort pretrained features and underperform out-of-distribution": linear probing, then fine-tuning).

Axes: N texts, D embedding, L labels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from longform.errors import require
from longform.inference.encoders import Encoder

SPREAD = 4.0  # standard deviations within which tanh is about straight
PENALTY = 0.5  # C of the logistic regression on tanh of the spread embeddings


class FittedHead(NamedTuple):
    """Weights of out_proj(tanh(dense(mean))): dense (D, D) and (D), out_proj (L, D) and (L).

    ``accuracy``: on the texts that it was fitted to.
    """

    state: dict[str, Tensor]
    accuracy: float


def embeddings(encoder: str | Path, texts: Sequence[str], *, length: int, pooling: str) -> np.ndarray:
    """Pooled last states float32 (N, D) of an encoder, texts cut at ``length`` tokens."""
    loaded = Encoder.from_pretrained(encoder, pooling=pooling, normalise=False, max_length=length, dtype="auto")
    found = list(tqdm(loaded.outcomes(texts), total=len(texts), desc="embedding", unit="text"))
    return np.stack([outcome.values for outcome in found])


def fit_head(vectors: np.ndarray, labels: Sequence[str], names: Sequence[str]) -> FittedHead:
    """Logistic regression on ``vectors`` (N, D), each dimension centred and scaled, as weights of the head."""
    linear: Any = require("sklearn.linear_model", extra="train")
    middle, spread = vectors.mean(axis=0), vectors.std(axis=0)
    scale = 1.0 / (SPREAD * (spread + 0.1 * spread.mean()))
    features = np.tanh((vectors - middle) * scale)
    place = {name: number for number, name in enumerate(names)}
    targets = np.array([place[label] for label in labels])
    model = linear.LogisticRegression(C=PENALTY, max_iter=1000).fit(features, targets)
    assert len(model.classes_) == len(names), "every label has a text"
    weight, bias = model.coef_, model.intercept_
    if len(names) == 2:  # scikit-learn has one row then, the second label's logit less the first's
        weight, bias = (np.concatenate([-values / 2, values / 2]) for values in (weight, bias))
    values = {
        "dense.weight": np.diag(scale), "dense.bias": -middle * scale, "out_proj.weight": weight,
        "out_proj.bias": bias,
    }  # fmt: skip
    state = {name: torch.from_numpy(np.asarray(value, dtype=np.float32)) for name, value in values.items()}
    return FittedHead(state, float(model.score(features, targets)))
