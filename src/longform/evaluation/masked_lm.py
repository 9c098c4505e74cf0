"""Perplexity of masked-language models on a fixed set of masked tokens.

Axes: B texts in a batch, n tokens, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from longform.data.batching import TokenizedText, collate, group_by_length, padded
from longform.data.special_tokens import SpecialTokens, content_ids, special_tokens
from longform.errors import ConfigurationError, DataError
from longform.inference.strategies import check_strategy

IGNORED = -100  # a label where nothing is to be predicted


@dataclass(frozen=True)
class MaskedLMScores:
    """``loss``: mean cross-entropy in nats over ``masked_tokens``; ``perplexity`` is its exponential."""

    loss: float
    perplexity: float
    masked_tokens: int
    texts: int


class MaskedText(NamedTuple):
    """Content ids with masks in them, and the ids that were there (IGNORED elsewhere); no special tokens."""

    input_ids: list[int]
    labels: list[int]


def mask_texts(
    texts: Sequence[str], tokenizer: Any, *, max_tokens: int | None = None, probability: float = 0.15, seed: int = 0
) -> list[MaskedText]:
    """Hide a share of each text's tokens behind the mask token, at least one of every text that has any.

    The choice depends on ``seed``, the text's place and the token's place alone, so that models that see the text
    whole, cut or in chunks are asked for the same tokens. ``max_tokens``: content tokens taken of a text.
    """
    if tokenizer.mask_token_id is None:
        raise ConfigurationError("the tokenizer has no mask token: this is not a masked-language model's")
    if not 0 < probability < 1:
        raise ConfigurationError(f"probability is {probability}; it lies between 0 and 1")
    return [
        _mask(ids[:max_tokens], tokenizer.mask_token_id, probability, np.random.default_rng((seed, place)))
        for place, ids in enumerate(content_ids(tokenizer, texts))
    ]


def masked_lm_scores(
    model: Any, tokenizer: Any, masked: Sequence[MaskedText], *, limit: int, strategy: str = "cut",
    batch_tokens: int = 2048, progress: bool = False,
) -> MaskedLMScores:  # fmt: skip
    """Scores of ``model`` on ``masked``: on the first ``limit`` tokens, or in chunks of ``limit`` ("chunk-average")."""
    check_strategy(strategy)
    pieces = _pieces(masked, special_tokens(tokenizer), limit, most=None if strategy == "chunk-average" else 1)
    groups = list(group_by_length([len(piece.input_ids) for piece in pieces], batch_tokens))
    total, count = 0.0, 0
    for places in tqdm(groups, desc=f"masked tokens ({strategy})", unit="batch", disable=not progress):
        chosen = [pieces[place] for place in places]
        batch = collate(places, [TokenizedText(piece.input_ids) for piece in chosen], tokenizer)
        with torch.inference_mode():
            logits = model(**batch.model_inputs(model.device)).logits
        wanted, _ = padded([piece.labels for piece in chosen], value=IGNORED)
        hidden = wanted != IGNORED
        total += cross_entropy(logits[hidden].float(), wanted[hidden].to(logits.device), reduction="sum").item()
        count += int(hidden.sum())
    if count == 0:
        raise DataError("the texts have no tokens to mask")
    loss = total / count
    return MaskedLMScores(loss, math.exp(min(loss, 700.0)), count, len(masked))


def _pieces(texts: Sequence[MaskedText], special: SpecialTokens, limit: int, *, most: int | None) -> list[MaskedText]:
    """At most ``most`` chunks of each text, from its beginning, each with the special tokens around it."""
    size = limit - special.total
    if size < 1:
        raise ConfigurationError(
            f"{limit} tokens leave no room for text beside {special.total} special ones: give more"
        )
    unasked = SpecialTokens(*((IGNORED,) * len(side) for side in special))
    return [
        MaskedText(special.around(ids[start : start + size]), unasked.around(labels[start : start + size]))
        for ids, labels in texts
        for start in range(0, max(len(ids), 1), size)[:most]
    ]


def _mask(ids: list[int], mask_id: int, probability: float, generator: np.random.Generator) -> MaskedText:
    drawn = generator.random(len(ids))
    chosen = drawn < probability
    if ids and not chosen.any():
        chosen[drawn.argmin()] = True
    return MaskedText(np.where(chosen, mask_id, ids).tolist(), np.where(chosen, ids, IGNORED).tolist())
