"""Tokens that a language model is asked for: hidden ones (BERT's 80/10/10), or each one after those before it.

Axes: B blocks, n tokens, m tokens that are asked for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.data.token_store import SEPARATOR, BlockFrame, Blocks

FIXED = 20_060_468  # the seed of the validation masks; not a setting, so that losses of different runs compare
STANDARD = 0.15  # of the validation set is asked for
MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1  # of these: behind the mask token, behind another token


class AskedBlocks(NamedTuple):
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
        """How much of a step's loss it is: tokens that are asked for."""
        return len(self.labels)


class Hiding(NamedTuple):
    """How tokens are hidden: ``fraction`` of the content; other tokens are those from ``first_ordinary`` on."""

    fraction: float
    mask_id: int
    first_ordinary: int
    vocabulary: int

    def draw(self, candidates: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Some of ``candidates`` (places), at least one, in order, and what to put there: -1 for "as it is"."""
        count = min(len(candidates), max(1, round(self.fraction * len(candidates))))
        chosen = np.sort(generator.permutation(len(candidates))[:count])
        fate = generator.random(count)
        other = generator.integers(self.first_ordinary, self.vocabulary, count)
        put = np.where(fate < MASKED_SHARE, self.mask_id, -1)
        put = np.where(fate >= 1 - RANDOM_SHARE, other, put)
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


def next_tokens(content: np.ndarray, frame: BlockFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One block's content, its places but for the first of each document, which nothing of it precedes, and the tokens.

    A block's first token is asked for where a special token stands before it.
    """
    asked = np.ones(len(content), dtype=bool)
    asked[0] = bool(frame.special.prefix)
    if frame.separator is not None:
        asked[1:] &= content[:-1] != frame.separator
    places = np.flatnonzero(asked)
    return content, places, content[places]


def _with(content: np.ndarray, places: np.ndarray, put: np.ndarray) -> np.ndarray:
    hidden = content.copy()
    hidden[places] = np.where(put < 0, content[places], put)
    return hidden


def collated(
    blocks: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], frame: BlockFrame, length: int, at_once: int
) -> list[AskedBlocks]:
    """``collate_blocks`` of ``at_once`` blocks each."""
    starts = range(0, len(blocks), at_once)
    return [collate_blocks(blocks[start : start + at_once], frame, length) for start in starts]


def collate_blocks(
    blocks: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], frame: BlockFrame, length: int
) -> AskedBlocks:
    """Blocks as ``mask_block`` gives them, framed, padded to ``length`` and stacked."""
    start = len(frame.special.prefix)
    places = np.concatenate([row * length + start + where for row, (_, where, _) in enumerate(blocks)])
    labels = np.concatenate([wanted for _, _, wanted in blocks])
    ids, mask = frame.stack([content for content, _, _ in blocks], length)
    return AskedBlocks(ids, None if mask.all() else mask, torch.from_numpy(places), torch.from_numpy(labels))


def fixed_masked_set(blocks: Blocks, hiding: Hiding, *, blocks_at_once: int) -> list[AskedBlocks]:
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


def unigram_shares(counts: np.ndarray) -> np.ndarray:
    """Probability (V) of each token by how often it occurs, one added to each count."""
    return (counts + 1.0) / (counts.sum() + len(counts))


def unigram_loss(shares: np.ndarray, validation: Sequence[AskedBlocks]) -> float:
    """Nats a token that is asked for of predicting ``shares`` (V) everywhere."""
    return float(-np.log(shares[np.concatenate([part.labels.numpy() for part in validation])]).mean())
