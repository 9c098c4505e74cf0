"""Masks of a masked-language model: the tokens that are hidden, and what stands in their place (BERT's 80/10/10).

Axes: B blocks, n tokens, m hidden tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.data.token_store import SEPARATOR, BlockFrame, Blocks, TokenStore

FIXED = 20_060_468  # the seed of the validation masks; not a setting, so that losses of different runs compare
STANDARD = (0.15, 0.8, 0.1)  # of the validation set: asked for; of these the mask token, another token


class MaskedBlocks(NamedTuple):
    """Blocks that pass through the model together.

    ``input_ids`` long (B, n), ``attention_mask`` long (B, n) or None without padding, ``places`` long (m): which of
    the flattened (B * n) tokens are asked for, ``labels`` long (m): what was there.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    places: Tensor
    labels: Tensor

    @property
    def weight(self) -> float:
        """How much of a step's loss it is: hidden tokens."""
        return len(self.labels)


class Hiding(NamedTuple):
    """How tokens are hidden: ``fraction`` of the content; of these ``mask_share`` become the mask token,
    ``random_share`` another token, ids ``first_ordinary`` to ``vocabulary`` - 1, and the rest stays as it is.
    """

    fraction: float
    mask_share: float
    random_share: float
    mask_id: int
    first_ordinary: int
    vocabulary: int

    def draw(self, candidates: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Some of ``candidates`` (places), at least one, in order, and what to put there: -1 for "as it is"."""
        count = min(len(candidates), max(1, round(self.fraction * len(candidates))))
        chosen = np.sort(generator.permutation(len(candidates))[:count])
        fate = generator.random(count)
        other = generator.integers(self.first_ordinary, self.vocabulary, count)
        put = np.where(fate < self.mask_share, self.mask_id, -1)
        put = np.where(fate >= 1 - self.random_share, other, put)
        return candidates[chosen], put


def mask_block(
    content: np.ndarray, hiding: Hiding, separator: int | None, seed: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One block's content with tokens hidden, their places in it, and what was there.

    Everything depends on the content and ``seed`` alone. Separators are not hidden.
    """
    candidates = np.arange(len(content)) if separator is None else np.flatnonzero(content != separator)
    places, put = hiding.draw(candidates, np.random.default_rng(seed))
    return _with(content, places, put), places, content[places]


def _with(content: np.ndarray, places: np.ndarray, put: np.ndarray) -> np.ndarray:
    hidden = content.copy()
    hidden[places] = np.where(put < 0, content[places], put)
    return hidden


def collated(
    blocks: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], frame: BlockFrame, length: int, at_once: int
) -> list[MaskedBlocks]:
    """``collate_blocks`` of ``at_once`` blocks each."""
    starts = range(0, len(blocks), at_once)
    return [collate_blocks(blocks[start : start + at_once], frame, length) for start in starts]


def collate_blocks(
    blocks: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], frame: BlockFrame, length: int
) -> MaskedBlocks:
    """Blocks as ``mask_block`` gives them, framed, padded to ``length`` and stacked."""
    start = len(frame.special.prefix)
    places = np.concatenate([row * length + start + where for row, (_, where, _) in enumerate(blocks)])
    labels = np.concatenate([wanted for _, _, wanted in blocks])
    ids, mask = frame.stack([content for content, _, _ in blocks], length)
    return MaskedBlocks(ids, None if mask.all() else mask, torch.from_numpy(places), torch.from_numpy(labels))


def fixed_masked_set(blocks: Blocks, hiding: Hiding, *, blocks_at_once: int) -> list[MaskedBlocks]:
    """The blocks with tokens hidden once and for all: the same tokens of each document at every block length."""
    places, puts = [], []
    for document in sorted(blocks.documents.tolist()):
        first = int(blocks.store.ends[document - 1]) if document else 0
        inside = np.arange(first, int(blocks.store.ends[document]))
        where, put = hiding.draw(inside, np.random.default_rng((FIXED, document)))
        places.append(where)
        puts.append(put)
    if not sum(map(len, places)):
        return []
    hidden, put = np.concatenate(places), np.concatenate(puts)
    masked = [_with_fixed(blocks, number, hidden, put) for number in range(len(blocks))]
    kept = [block for block in masked if len(block[1])]
    return collated(kept, blocks.frame, blocks.length, blocks_at_once)


def _with_fixed(
    blocks: Blocks, number: int, hidden: np.ndarray, put: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    content, places = blocks.contents(number), blocks.places(number)
    at = np.minimum(np.searchsorted(hidden, places), len(hidden) - 1)
    where = np.flatnonzero((hidden[at] == places) & (places != SEPARATOR))
    return _with(content, where, put[at[where]]), where, content[where]


COUNTED = 2**24  # tokens whose pairs are counted, at most
SAID = {"unigram_loss": "predicting frequencies alone", "bigram_loss": "predicting from the token before"}


def counted_losses(run: Mapping[str, Any]) -> dict[str, float]:
    """Losses of counting alone by their description, of those that the facts of a ``run`` have."""
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
