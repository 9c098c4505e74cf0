"""Blocks cut from documents, nothing lost; what a model is asked for: the right share, never a special token."""

from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import strategies as st

from longform.errors import ConfigurationError
from longform_text.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform_text.training.pretraining.data import Batch, DataCollatorForBlocks, blocks_of
from longform_text.training.trainer import IGNORED

LENGTH, SEPARATOR = 32, 2


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(
        ["the rain falls on the hill and the river runs to the sea"] * 5, TokenizerSettings(vocab_size=280)
    )


def _documents(rows: list[list[int]]) -> Dataset:
    arrays = [np.array(row, dtype=np.int32) for row in rows]
    return Dataset.from_dict({"input_ids": arrays}).with_format("numpy")


def _cut(texts: list[list[int]], size: int, packing: str, frame: tuple[Any, Any, int | None]) -> list[list[int]]:
    found = blocks_of(_documents(texts), size, packing=packing, frames={"input_ids": frame})
    return list(found.with_format(None)["input_ids"])


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    texts=st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=23), min_size=1, max_size=9),
    size=st.integers(1, 15),
)
def test_blocks_hold_every_token_once(texts: list[list[int]], size: int) -> None:
    stream = [token for text in texts for token in [*text, SEPARATOR]][:-1]
    expected = [[1, *stream[start : start + size], 3] for start in range(0, len(stream), size)]
    assert _cut(texts, size, "full", ([1], [3], SEPARATOR)) == expected
    apart = [[1, *text[start : start + size]] for text in texts for start in range(0, len(text), size)]
    assert _cut(texts, size, "documents", ([1], [], SEPARATOR)) == apart
    joined = [token for text in texts for token in text]
    assert _cut(texts, size, "full", ([], [], None)) == [joined[i : i + size] for i in range(0, len(joined), size)]


def _collator(tokenizer: Any, length: int = LENGTH, *, causal: bool = False) -> DataCollatorForBlocks:
    torch.manual_seed(0)
    return DataCollatorForBlocks(tokenizer, length, causal=causal)


def _batch(collator: DataCollatorForBlocks, documents: Dataset, packing: str = "documents") -> Batch:
    return collator(list(collator.blocks(documents, packing)))


def _whole(batch: Batch) -> torch.Tensor:
    """The ids as they were before some were hidden."""
    return torch.where(batch["labels"] == IGNORED, batch["input_ids"], batch["labels"])


def test_the_shares_are_bert_s(tokenizer: Any) -> None:
    batch = _batch(_collator(tokenizer, 20_002), _documents([[50] * 20_000]))
    asked = batch["labels"][0] != IGNORED
    found = batch["input_ids"][0, asked]
    assert abs(asked.float().mean() - 0.15) < 0.01
    assert set(_whole(batch)[0, 1:-1].tolist()) == {50}
    assert abs((found == tokenizer.mask_token_id).float().mean() - 0.8) < 0.03
    assert abs((found == 50).float().mean() - 0.1) < 0.03


@pytest.mark.parametrize("causal", [False, True])
def test_special_tokens_and_padding_are_not_asked_for(tokenizer: Any, causal: bool) -> None:
    content, collator = [10, tokenizer.sep_token_id, 11], _collator(tokenizer, causal=causal)
    documents = _documents([content] * 90)
    batch = _batch(collator, documents)
    assert batch["attention_mask"].sum(1).tolist() == [5] * 90
    asked = (batch["labels"] != IGNORED).any(dim=0)
    assert asked[:5].tolist() == ([False, False, True, True, False] if causal else [False, True, False, True, False])
    assert not asked[5:].any()
    framed = [tokenizer.cls_token_id, *content, tokenizer.sep_token_id]
    assert _whole(batch)[:, :5].tolist() == [framed] * 90


def test_the_validation_set_asks_for_the_same_tokens_at_every_length(tokenizer: Any) -> None:
    tokens = np.random.default_rng(0).integers(5, 280, 780).tolist()
    asked = []
    for length, packing in ((12, "full"), (33, "full"), (47, "documents")):
        collator = _collator(tokenizer, length)
        batch = _batch(collator, collator.hidden(_documents([tokens[:300], tokens[300:]])), packing)
        asked.append(batch["labels"][batch["labels"] != IGNORED].tolist())
        assert set(asked[-1]) <= set(_whole(batch).flatten().tolist())
    assert asked[0] == asked[1] == asked[2]
    assert abs(len(asked[0]) - 0.15 * 780) < 40


def test_what_cannot_be_asked(tokenizer: Any) -> None:
    with pytest.raises(ConfigurationError, match="length=2 leaves no room beside 2"):
        _collator(tokenizer, 2)
    tokenizer = train_tokenizer(["the rain"] * 5, TokenizerSettings(vocab_size=262))
    tokenizer.mask_token = None
    assert _collator(tokenizer, causal=True).size == LENGTH - 2
    with pytest.raises(ConfigurationError, match="the tokenizer has no mask_token_id"):
        _collator(tokenizer)
