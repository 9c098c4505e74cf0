"""Batches by length: nothing lost, nothing over the limit, cuts counted."""

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longform.errors import ConfigurationError, DataError
from longform_text.data.batching import group_by_length, tokenized_batches
from longform_text.data.text import Document

OPTIONS: dict[str, Any] = {"max_length": 20, "max_tokens_per_batch": 60}


@given(lengths=st.lists(st.integers(0, 50), max_size=40), limit=st.integers(1, 80))
def test_groups_cover_everything_once_within_the_limit(lengths: list[int], limit: int) -> None:
    groups = list(group_by_length(lengths, limit))
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[place] for place in group) <= limit
    flat = [lengths[place] for group in groups for place in group]
    assert flat == sorted(lengths, reverse=True)


def test_batches_hold_the_tokenizers_ids(tiny_tokenizer: Any) -> None:
    words = ["the", "a of", "", "long text near far good", "x"] * 5
    seen = {}
    for batch in tokenized_batches(words, tiny_tokenizer, window=7, **OPTIONS):
        assert batch.input_ids.shape == batch.attention_mask.shape == batch.token_type_ids.shape
        assert batch.input_ids.dtype == batch.attention_mask.dtype == torch.long
        assert batch.input_ids.numel() <= 60
        for row, index in enumerate(batch.indices):
            valid = batch.attention_mask[row].bool()
            assert valid.sum() == batch.tokens[row]
            assert batch.input_ids[row][~valid].eq(tiny_tokenizer.pad_token_id).all()
            assert valid.tolist() == sorted(valid.tolist(), reverse=True)
            seen[index] = batch.input_ids[row][valid].tolist()
        assert not any(batch.truncated)
    assert [seen[index] for index in range(25)] == tiny_tokenizer(words)["input_ids"]


def test_long_texts_are_cut_and_counted(tiny_tokenizer: Any) -> None:
    (batch,) = tokenized_batches(["the " * 30, "the"], tiny_tokenizer, **OPTIONS)
    assert batch.indices == [0, 1]
    assert batch.tokens == [20, 3]
    assert batch.truncated == [12, 0]
    assert batch.input_ids[0, -1] == tiny_tokenizer.sep_token_id


def test_a_limit_that_special_tokens_pass_is_refused(tiny_tokenizer: Any) -> None:
    for text, limit in (("the " * 160, 1), ("the the", 1), (("the the", "the"), 2)):
        message = f"max_length={limit} is less than the special tokens of a text: {limit + 1}$"
        with pytest.raises(ConfigurationError, match=message):
            list(tokenized_batches([text], tiny_tokenizer, max_length=limit, max_tokens_per_batch=100))


def test_a_text_longer_than_a_batch_goes_alone(tiny_tokenizer: Any) -> None:
    batches = list(tokenized_batches(["the " * 30] * 2, tiny_tokenizer, max_length=None, max_tokens_per_batch=8))
    assert [batch.input_ids.shape for batch in batches] == [(1, 32), (1, 32)]


def test_on_long_error_names_document_tokens_and_limit(tiny_tokenizer: Any) -> None:
    document = Document("essay.txt", "the " * 30, {})
    with pytest.raises(DataError, match=r"essay\.txt has 32 tokens, the limit is 20"):
        list(tokenized_batches([document], tiny_tokenizer, on_long="error", **OPTIONS))
    with pytest.raises(DataError, match="number 1 has 32 tokens"):
        list(tokenized_batches(["a", "the " * 30], tiny_tokenizer, on_long="error", **OPTIONS))


def test_empty_text_is_its_special_tokens(tiny_tokenizer: Any) -> None:
    (batch,) = tokenized_batches(["", " \n"], tiny_tokenizer, **OPTIONS)
    assert batch.input_ids.tolist() == [[tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id]] * 2


def test_empty_text_without_special_tokens_is_padding() -> None:
    class Bare:
        pad_token_id = 9

        def __call__(self, texts: list[str], pairs: Any, **_: Any) -> dict[str, list[list[int]]]:
            return {"input_ids": [[] for _ in texts]}

    (batch,) = tokenized_batches(["", ""], Bare(), **OPTIONS)
    assert batch.input_ids.tolist() == [[9], [9]]
    assert batch.attention_mask.tolist() == [[0], [0]]
    assert "token_type_ids" not in batch.model_inputs()


def test_pairs(tiny_tokenizer: Any) -> None:
    pairs: list[Any] = [("the a", "of"), Document("x", "near", {}, "the " * 30)]
    (batch,) = tokenized_batches(pairs, tiny_tokenizer, **OPTIONS)
    assert batch.indices == [1, 0]
    assert batch.truncated == [14, 0]
    assert batch.token_type_ids is not None
    assert batch.token_type_ids[1, :6].tolist() == [0, 0, 0, 0, 1, 1]
    with pytest.raises(DataError, match="1 of 2 texts are pairs"):
        list(tokenized_batches([("a", "b"), "c"], tiny_tokenizer, **OPTIONS))


def test_streaming_takes_one_window_at_a_time(tiny_tokenizer: Any) -> None:
    taken = []

    def texts() -> Any:
        for number in range(10):
            taken.append(number)
            yield "the"

    batches = tokenized_batches(texts(), tiny_tokenizer, window=4, **OPTIONS)
    assert next(batches).indices == [0, 1, 2, 3]
    assert len(taken) == 4
    assert [batch.indices for batch in batches] == [[4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("options", [{"on_long": "cut"}, {"max_length": 0}, {"max_tokens_per_batch": 0}, {"window": 0}])
def test_options_that_make_no_sense(tiny_tokenizer: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        list(tokenized_batches(["a"], tiny_tokenizer, **{**OPTIONS, **options}))


@pytest.mark.parametrize("limit", [512, 4096, 10**9])
@pytest.mark.parametrize("room", [8192, 16384])
def test_little_of_a_mixed_corpus_is_padding(limit, room):
    source = random.Random(3)
    lengths = [min(limit, int(source.lognormvariate(6.0, 1.4)) + 2) for _ in range(1500)]
    groups = list(group_by_length(lengths, room))
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    padded = sum(len(group) * lengths[group[0]] for group in groups)
    assert all(len(group) * lengths[group[0]] <= room or len(group) == 1 for group in groups)
    assert 1 - sum(lengths) / padded < 0.05


def test_a_small_batch_takes_texts_of_any_length():
    assert list(group_by_length([5, 900, 40, 700, 3], 8192)) == [[1, 3], [2, 0, 4]]
    assert list(group_by_length([5, 90, 40, 70, 3], 8192)) == [[1, 3, 2, 0, 4]]
