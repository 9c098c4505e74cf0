"""Perplexity: the same hidden tokens for all, and the loss of a plain loop."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from longform.errors import ConfigurationError, DataError
from longform.evaluation.masked_lm import IGNORED, mask_texts, masked_lm_scores
from longform.inference.loading import load_limited
from tolerances import TOLERANCES

TEXTS = ["the near text is far " * 12, "good", "", "a long text of it " * 3]


def test_masks_depend_on_seed_and_place_alone(tiny_tokenizer: Any) -> None:
    masked = mask_texts(TEXTS, tiny_tokenizer)
    assert masked == mask_texts(TEXTS, tiny_tokenizer)
    assert masked != mask_texts(TEXTS, tiny_tokenizer, seed=1)
    for whole, cut in zip(masked, mask_texts(TEXTS, tiny_tokenizer, max_tokens=40), strict=True):
        hidden = [place for place, label in enumerate(whole.labels) if label != IGNORED and place < 40]
        assert hidden == [place for place, label in enumerate(cut.labels) if label != IGNORED]
    ids = tiny_tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    text = masked[0]
    assert [b if b != IGNORED else a for a, b in zip(text.input_ids, text.labels, strict=True)] == ids
    assert {a for a, b in zip(text.input_ids, text.labels, strict=True) if b != IGNORED} == {
        tiny_tokenizer.mask_token_id
    }
    assert masked[1].input_ids == [tiny_tokenizer.mask_token_id]
    assert masked[2] == ([], [])


def test_scores_are_a_plain_loops(masked_lm_folder: Path, tiny_tokenizer: Any) -> None:
    model, tokenizer, limit = load_limited(AutoModelForMaskedLM, masked_lm_folder, max_length=None)
    masked = mask_texts(TEXTS, tokenizer)
    found = masked_lm_scores(model, tokenizer, masked, limit=limit, strategy="chunk-average", batch_tokens=64)
    plain = AutoModelForMaskedLM.from_pretrained(masked_lm_folder).eval()
    losses = []
    for text in masked:
        for start in range(0, len(text.input_ids), 30):
            ids = [tokenizer.cls_token_id, *text.input_ids[start : start + 30], tokenizer.sep_token_id]
            with torch.inference_mode():
                logits = plain(torch.tensor([ids])).logits[0].log_softmax(-1)
            wanted = text.labels[start : start + 30]
            losses += [-logits[at + 1, token].item() for at, token in enumerate(wanted) if token != IGNORED]
    assert found.masked_tokens == len(losses)
    assert found.loss == pytest.approx(sum(losses) / len(losses), abs=TOLERANCES["model"][torch.float32].atol)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    cut = masked_lm_scores(model, tokenizer, masked, limit=limit, strategy="cut")
    assert cut.masked_tokens < found.masked_tokens


def test_bad_input(masked_lm_folder: Path, tiny_tokenizer: Any) -> None:
    model, tokenizer, limit = load_limited(AutoModelForMaskedLM, masked_lm_folder, max_length=None)
    with pytest.raises(DataError, match="no tokens to mask"):
        masked_lm_scores(model, tokenizer, mask_texts([""], tokenizer), limit=limit)
    with pytest.raises(ConfigurationError, match="probability is 1"):
        mask_texts(["a"], tokenizer, probability=1)

    class Maskless:
        mask_token_id = None

    with pytest.raises(ConfigurationError, match="no mask token"):
        mask_texts(["a"], Maskless())


def test_a_length_without_room_for_text(tiny_tokenizer: Any) -> None:
    with pytest.raises(ConfigurationError, match="2 tokens leave no room for text beside 2 special ones"):
        masked_lm_scores(None, tiny_tokenizer, mask_texts(["a text"], tiny_tokenizer), limit=2)
