"""Masked-language-model perplexity on a fixed set of masked tokens.

Axes: B texts in a batch, n tokens, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import AutoModelForMaskedLM

from longform.data.batching import TokenizedText, collate, group_by_length
from longform.errors import ConfigurationError, DataError
from longform.inference.loading import checked_limit, load_pretrained, token_limit
from longform.inference.strategies import STRATEGIES, chunks, special_frame

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
    contents = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [
        _mask(ids[:max_tokens], tokenizer.mask_token_id, probability, np.random.default_rng((seed, place)))
        for place, ids in enumerate(contents)
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
    """Scores of ``model`` on ``masked``: on the first ``limit`` tokens, or in chunks of ``limit`` ("chunk-average")."""
    if strategy not in STRATEGIES:
        raise ConfigurationError(f'strategy is "{strategy}"; it is one of {", ".join(STRATEGIES)}')
    before, after = special_frame(tokenizer)
    size = limit - len(before) - len(after)
    if size < 1:
        raise ConfigurationError(
            f"{limit} tokens leave no room for text beside {len(before) + len(after)} special ones: give more"
        )
    pieces: list[TokenizedText] = []
    labels: list[list[int]] = []
    for text in masked:
        count = None if strategy == "chunk-average" else 1
        for ids in chunks(text.input_ids, size=size, overlap=0)[:count]:
            pieces.append(TokenizedText([*before, *ids, *after], None, 0))
        for wanted in chunks(text.labels, size=size, overlap=0)[:count]:
            labels.append([*[IGNORED] * len(before), *wanted, *[IGNORED] * len(after)])
    groups = list(group_by_length([len(piece.input_ids) for piece in pieces], batch_tokens))
    total, count = 0.0, 0
    for places in tqdm(groups, desc=f"masked tokens ({strategy})", unit="batch", disable=not progress):
        batch = collate(places, [pieces[place] for place in places], tokenizer)
        inputs = {name: tensor.to(model.device) for name, tensor in batch.model_inputs().items()}
        with torch.inference_mode():
            logits = model(**inputs).logits
        wanted = torch.full_like(inputs["input_ids"], IGNORED)
        for row, place in enumerate(places):
            wanted[row, : len(labels[place])] = torch.tensor(labels[place], device=wanted.device)
        hidden = wanted != IGNORED
        total += cross_entropy(logits[hidden].float(), wanted[hidden], reduction="sum").item()
        count += int(hidden.sum())
    if count == 0:
        raise DataError("the texts have no tokens to mask")
    loss = total / count
    return MaskedLMScores(loss, math.exp(min(loss, 700.0)), count, len(masked))


def load_masked_lm(
    source: str | Path, *, max_length: int | None = None, dtype: str = "float32", device: str = "auto"
) -> tuple[Any, Any, int]:
    """Model, tokenizer and token limit of a folder or hub name with a masked-language head."""
    model, tokenizer = load_pretrained(AutoModelForMaskedLM, source, dtype=dtype, device=device)
    return model, tokenizer, checked_limit(token_limit(model, tokenizer), max_length, name=str(source))


def _mask(ids: list[int], mask_id: int, probability: float, generator: np.random.Generator) -> MaskedText:
    drawn = generator.random(len(ids))
    chosen = drawn < probability
    if ids and not chosen.any():
        chosen[drawn.argmin()] = True
    hidden = [mask_id if hide else token for token, hide in zip(ids, chosen, strict=True)]
    return MaskedText(hidden, [token if hide else IGNORED for token, hide in zip(ids, chosen, strict=True)])
