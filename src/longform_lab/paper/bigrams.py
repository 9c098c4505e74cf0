"""Loss of a language model that knows pairs of tokens alone, which a training of Figure 3 has to be below."""

from collections.abc import Iterable

import numpy as np

from longform_text.training.pretraining.data import Batch, PretrainingData
from longform_text.training.trainer import IGNORED

COUNTED = 2**24  # tokens whose pairs are counted, at most


def bigram_loss(data: PretrainingData) -> float:
    """Nats a hidden token of predicting it by the token before it, which is known even where it is hidden too.

    Pairs are those of the documents that are trained on, the first ``COUNTED`` tokens of them. A pair's probability is
    interpolated with that of its second token, by Witten and Bell: (c(s, t) + T(s) p(t)) / (c(s) + T(s)) for c(s, t)
    occurrences of t after s and T(s) different tokens after s.
    """
    vocabulary = len(data.tokenizer)
    pairs, counts = np.unique(_pairs(data.taught["input_ids"], vocabulary), return_counts=True)
    before = pairs // vocabulary
    followed = np.bincount(before, weights=counts, minlength=vocabulary + 1)
    kinds = np.bincount(before, minlength=vocabulary + 1)
    parts = [_asked(part, vocabulary) for part in data.validation]
    previous, hidden = (np.concatenate(each) for each in zip(*parts, strict=True))
    asked = previous * vocabulary + hidden
    place = np.searchsorted(pairs, asked)
    occurred = np.where(np.append(pairs, -1)[place] == asked, np.append(counts, 0)[place], 0)
    total = followed[previous] + kinds[previous]
    interpolated = (occurred + kinds[previous] * data.shares[hidden]) / np.maximum(total, 1)
    return float(-np.log(np.where(total > 0, interpolated, data.shares[hidden])).mean())


def _pairs(documents: Iterable[np.ndarray], vocabulary: int) -> np.ndarray:
    """s V + t for every token t after a token s in a document."""
    found, left = [], COUNTED
    for document in documents:
        tokens = document[:left].astype(np.int64)
        found.append(tokens[:-1] * vocabulary + tokens[1:])
        left -= len(tokens)
        if left <= 0:
            break
    return np.concatenate(found)


def _asked(part: Batch, none: int) -> tuple[np.ndarray, np.ndarray]:
    """The token before each hidden one, ``none`` where a block begins with it, and the hidden ones."""
    ids, labels = part["input_ids"].numpy().flatten(), part["labels"].numpy().flatten()
    places = np.flatnonzero(labels != IGNORED)
    ids[places] = hidden = labels[places]
    return np.where(places % part["input_ids"].shape[1] == 0, none, ids[places - 1]), hidden
