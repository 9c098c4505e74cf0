"""What counting alone loses on hidden tokens: by a token's frequency (unigram), and by the token before it (bigram)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longform.data.token_store import TokenStore
from longform.training.masking import MaskedBlocks

COUNTED = 2**24  # tokens whose pairs are counted, at most
SAID = {"unigram_loss": "predicting frequencies alone", "bigram_loss": "predicting from the token before"}


def counted_losses(run: Mapping[str, Any]) -> dict[str, float]:
    """What is said of each -> its loss, of the facts of a run that has it."""
    return {said: run[name] for name, said in SAID.items() if run.get(name) is not None}


def unigram_shares(counts: np.ndarray) -> np.ndarray:
    """Probability (V) of each token by how often it occurs, one added to each count."""
    return (counts + 1.0) / (counts.sum() + len(counts))


def unigram_loss(shares: np.ndarray, validation: Sequence[MaskedBlocks]) -> float:
    """Nats a hidden token of predicting ``shares`` (V) everywhere."""
    return _loss(shares[np.concatenate([part.labels.numpy() for part in validation])])


def bigram_loss(
    shares: np.ndarray, store: TokenStore, documents: np.ndarray, validation: Sequence[MaskedBlocks]
) -> float:
    """Nats a hidden token of predicting it by the token before it, which is known even where it is hidden too.

    Pairs are those of ``documents`` of the store, the first ``COUNTED`` tokens of them. A pair's probability is
    interpolated with ``shares`` (V), by Witten and Bell: (c(s, t) + T(s) p(t)) / (c(s) + T(s)) for c(s, t)
    occurrences of t after s and T(s) different tokens after s.
    """
    vocabulary = len(shares)
    pairs, counts = np.unique(_pairs(store, documents, vocabulary), return_counts=True)
    before = pairs // vocabulary
    followed = np.bincount(before, weights=counts, minlength=vocabulary + 1)
    kinds = np.bincount(before, minlength=vocabulary + 1)
    parts = [_asked(part, vocabulary) for part in validation]
    previous, hidden = (np.concatenate(each) for each in zip(*parts, strict=True))
    asked = previous * vocabulary + hidden
    place = np.searchsorted(pairs, asked)
    occurred = np.where(np.append(pairs, -1)[place] == asked, np.append(counts, 0)[place], 0)
    total = followed[previous] + kinds[previous]
    interpolated = (occurred + kinds[previous] * shares[hidden]) / np.maximum(total, 1)
    return _loss(np.where(total > 0, interpolated, shares[hidden]))


def _pairs(store: TokenStore, documents: np.ndarray, vocabulary: int) -> np.ndarray:
    """s V + t for every token t after a token s in a document."""
    found, left = [], COUNTED
    for document in documents.tolist():
        first = int(store.ends[document - 1]) if document else 0
        tokens = store.tokens[first : min(int(store.ends[document]), first + left)].astype(np.int64)
        found.append(tokens[:-1] * vocabulary + tokens[1:])
        left -= len(tokens)
        if left <= 0:
            break
    return np.concatenate(found)


def _asked(part: MaskedBlocks, none: int) -> tuple[np.ndarray, np.ndarray]:
    """The token before each hidden one, ``none`` where a block begins with it, and the hidden ones."""
    ids, places, hidden = part.input_ids.numpy().flatten(), part.places.numpy(), part.labels.numpy()
    ids[places] = hidden
    return np.where(places % part.input_ids.shape[1] == 0, none, ids[places - 1]), hidden


def _loss(shares: np.ndarray) -> float:
    return float(-np.log(shares).mean())
