"""Tokens that a model is asked for: the right share, never a special token, fixed for the validation set."""

from typing import Any

import numpy as np
import pytest
import torch

from longform.errors import ConfigurationError
from longform_text.data.token_store import TokenStore
from longform_text.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform_text.training.pretraining.batches import AskedBlocks, DataCollatorForBlocks, parted
from longform_text.training.trainer import IGNORED

LENGTH = 32


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(
        ["the rain falls on the hill and the river runs to the sea"] * 5, TokenizerSettings(vocab_size=280)
    )


def _asking(tokenizer: Any, length: int = LENGTH, *, causal: bool = False) -> DataCollatorForBlocks:
    torch.manual_seed(0)
    return DataCollatorForBlocks(tokenizer, length, causal=causal)


def _whole(part: AskedBlocks) -> torch.Tensor:
    """The ids as they were before some were hidden."""
    return torch.where(part.labels == IGNORED, part.input_ids, part.labels)


def test_the_shares_are_bert_s(tokenizer: Any) -> None:
    row = _asking(tokenizer, 20_002).ask([np.full(20_000, 50)])
    asked = row.labels[0] != IGNORED
    found = row.input_ids[0, asked]
    assert abs(asked.float().mean() - 0.15) < 0.01
    assert set(_whole(row)[0, 1:-1].tolist()) == {50}
    assert abs((found == tokenizer.mask_token_id).float().mean() - 0.8) < 0.03
    assert abs((found == 50).float().mean() - 0.1) < 0.03
    assert row.weight == int(asked.sum())


@pytest.mark.parametrize("causal", [False, True])
def test_special_tokens_and_padding_are_not_asked_for(tokenizer: Any, causal: bool) -> None:
    content = np.array([10, tokenizer.sep_token_id, 11])
    first, part = parted(_asking(tokenizer, causal=causal).ask([content] * 90), 40)[:2]
    assert first.weight + part.weight == int((torch.cat([first.labels, part.labels]) != IGNORED).sum())
    assert part.attention_mask.sum(1).tolist() == [5] * 40
    asked = (part.labels != IGNORED).any(dim=0)
    assert asked[:5].tolist() == ([False, True, True, False, False] if causal else [False, True, False, True, False])
    assert not asked[5:].any()
    framed = [tokenizer.cls_token_id, *content, tokenizer.sep_token_id]
    assert _whole(part)[:, :5].tolist() == [framed] * 40


def test_the_validation_set_asks_for_the_same_tokens_at_every_length(tokenizer: Any) -> None:
    tokens = np.random.default_rng(0).integers(5, 280, 900).astype(np.uint16)
    store, documents = TokenStore(tokens, np.array([300, 420, 900])), np.array([0, 2])
    asked = []
    for length, packing in ((12, "full"), (33, "full"), (47, "documents")):
        found = _asking(tokenizer, length).fixed(store, documents, packing)
        assert found is not None
        asked.append(found.labels[found.labels != IGNORED].tolist())
        assert set(asked[-1]) <= set(_whole(found).flatten().tolist())
    assert asked[0] == asked[1] == asked[2]
    assert abs(len(asked[0]) - 0.15 * 780) < 40


def test_texts_without_tokens_ask_for_nothing(tokenizer: Any) -> None:
    store = TokenStore(np.zeros(0, np.int32), np.zeros(2, np.int64))
    for packing in ("full", "documents"):
        assert _asking(tokenizer).fixed(store, np.arange(2), packing) is None


def test_what_cannot_be_asked(tokenizer: Any) -> None:
    with pytest.raises(ConfigurationError, match="length=2 leaves no room beside 2"):
        _asking(tokenizer, 2)
    tokenizer = train_tokenizer(["the rain"] * 5, TokenizerSettings(vocab_size=262))
    tokenizer.mask_token = None
    assert _asking(tokenizer, causal=True).content == LENGTH - 2
    with pytest.raises(ConfigurationError, match="the tokenizer has no mask_token_id"):
        _asking(tokenizer)
