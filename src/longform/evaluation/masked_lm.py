"""Perplexity of masked-language models on a fixed set of masked tokens.

The masked tokens do not depend on how a model reads the text (whole, cut, in chunks), so that models can be compared;
those beyond a cut are left out, and ``masked_tokens`` says how many were counted.

Axes: B texts or chunks in a batch, n tokens, V vocabulary.
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
    """``loss``: mean cross-entropy in nats over ``masked_tokens``; ``perplexity`` is e to its power."""

    loss: float
    perplexity: float
    masked_tokens: int
    texts: int


class MaskedText(NamedTuple):
    """Token ids with mask tokens among them; ``labels``: the masked ids, IGNORED (-100) at all other tokens."""

    input_ids: list[int]
    labels: list[int]


def mask_texts(
    texts: Sequence[str], tokenizer: Any, *, max_tokens: int | None = None, probability: float = 0.15, seed: int = 0
) -> list[MaskedText]:
    """Replace a share of each text's tokens by the mask token, at least one a text; without special tokens.

    Which ones depends on ``seed``, the number of the text and the position of the token alone, so that models that see
    the text whole, cut or in chunks predict the same tokens. ``max_tokens``: tokens taken of a text, special ones not
    counted.
    """
    if tokenizer.mask_token_id is None:
        raise ConfigurationError("the tokenizer has no mask token: this is not a masked-language model's")
    if not 0 < probability < 1:
        raise ConfigurationError(f"probability is {probability}; it lies between 0 and 1")
    return [
        _mask(ids[:max_tokens], tokenizer.mask_token_id, probability, np.random.default_rng((seed, number)))
        for number, ids in enumerate(content_ids(tokenizer, texts))
    ]


def masked_lm_scores(
    model: Any,
    tokenizer: Any,
    masked: Sequence[MaskedText],
    *,
    limit: int,
    strategy: str = "cut",
    batch_tokens: int = 2048,
    progress: bool = False,
) -> MaskedLMScores:
    """Scores of ``model`` on texts of ``mask_texts``; ``limit``: tokens it reads at once, special ones included.

    ``strategy`` "chunk-average": every text in chunks of ``limit``; "cut" and "whole": its first ``limit`` tokens.
    """
    check_strategy(strategy)
    pieces = _pieces(masked, special_tokens(tokenizer), limit, most=None if strategy == "chunk-average" else 1)
    groups = list(group_by_length([len(piece.input_ids) for piece in pieces], batch_tokens))
    total, count = 0.0, 0
    for group in tqdm(groups, desc=f"masked tokens ({strategy})", unit="batch", disable=not progress):
        chosen = [pieces[index] for index in group]
        batch = collate(group, [TokenizedText(piece.input_ids) for piece in chosen], tokenizer)
        with torch.inference_mode():
            logits = model(**batch.model_inputs(model.device)).logits
        labels, _ = padded([piece.labels for piece in chosen], value=IGNORED)
        asked = labels != IGNORED
        total += cross_entropy(logits[asked].float(), labels[asked].to(logits.device), reduction="sum").item()
        count += int(asked.sum())
    if count == 0:
        raise DataError("the texts have no tokens to mask")
    loss = total / count
    return MaskedLMScores(loss, math.exp(min(loss, 700.0)), count, len(masked))  # e ** 710 is too large


def _pieces(texts: Sequence[MaskedText], special: SpecialTokens, limit: int, *, most: int | None) -> list[MaskedText]:
    """The first ``most`` chunks of each text (None: all), each with special tokens around it, which have no label."""
    size = limit - special.total
    if size < 1:
        raise ConfigurationError(
            f"{limit} tokens leave no room for text beside {special.total} special ones: give more"
        )
    no_labels = SpecialTokens(*((IGNORED,) * len(side) for side in special))
    return [
        MaskedText(special.around(ids[start : start + size]), no_labels.around(labels[start : start + size]))
        for ids, labels in texts
        for start in range(0, max(len(ids), 1), size)[:most]
    ]


def _mask(ids: list[int], mask_id: int, probability: float, generator: np.random.Generator) -> MaskedText:
    drawn = generator.random(len(ids))
    chosen = drawn < probability
    if ids and not chosen.any():  # a short text: the one that came nearest
        chosen[drawn.argmin()] = True
    return MaskedText(np.where(chosen, mask_id, ids).tolist(), np.where(chosen, ids, IGNORED).tolist())
