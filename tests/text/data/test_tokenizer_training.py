"""Tokenizers trained from texts: exact size, any text survives, clear errors."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from longform.errors import ConfigurationError, DataError
from longform_text.data.tokenizer_training import TokenizerSettings, train_tokenizer

TEXTS = ["the rain falls on the hill and the river runs to the sea", "snow falls on the hill in winter"] * 5


@pytest.mark.parametrize(("kind", "size"), [("byte-bpe", 290), ("wordpiece", 64)])
def test_a_trained_tokenizer_survives_saving(kind: str, size: int, tmp_path: Path) -> None:
    made = train_tokenizer(TEXTS, TokenizerSettings(kind, size), max_length=32)
    assert len(made) == size
    assert sorted(made.all_special_ids) == list(range(5))
    made.save_pretrained(tmp_path)
    loaded: Any = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.model_max_length == 32
    ids = loaded(TEXTS[0])["input_ids"]
    assert ids == made(TEXTS[0])["input_ids"]
    assert (ids[0], ids[-1]) == (loaded.cls_token_id, loaded.sep_token_id)
    assert loaded.decode(ids, skip_special_tokens=True) == TEXTS[0]
    assert loaded.mask_token_id not in ids


def test_bytes_survive_that_were_never_seen() -> None:
    made = train_tokenizer(TEXTS, TokenizerSettings("byte-bpe", 280))
    text = "Grüße, \N{SNOWMAN}\n\t中"
    assert made.decode(made(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize(("kind", "size"), [("byte-bpe", 300), ("wordpiece", 64)])
def test_the_same_texts_give_the_same_tokenizer(kind: str, size: int) -> None:
    made = [train_tokenizer(TEXTS, TokenizerSettings(kind, size)).backend_tokenizer.to_str() for _ in range(4)]
    assert len(set(made)) == 1


def test_lower_case() -> None:
    made = train_tokenizer(TEXTS, TokenizerSettings("byte-bpe", 280, lowercase=True))
    assert made("The RIVER")["input_ids"] == made("the river")["input_ids"]


def test_a_vocabulary_larger_than_the_corpus_supports() -> None:
    with pytest.raises(DataError, match=r"vocab_size=5,000 is more than the corpus supports.*vocab_size=\d+ or less"):
        train_tokenizer(TEXTS, TokenizerSettings("byte-bpe", 5_000))


@pytest.mark.parametrize("texts", [[], ["", "  \n"]])
def test_an_empty_corpus(texts: list[str]) -> None:
    with pytest.raises(DataError, match="the corpus is empty"):
        train_tokenizer(texts, TokenizerSettings("wordpiece", 64))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "unigram"}, '"unigram" is not known; it is one of byte-bpe, wordpiece'),
        ({"vocab_size": 100}, "vocab_size=100 is less than the 261"),
        ({"min_frequency": 0}, "min_frequency=0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        TokenizerSettings(**settings)
