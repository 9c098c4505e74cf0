"""The token cache: whole or absent, the corpus recognised by what it holds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longform.data.token_store import TOKENS, CorpusFiles, corpus_key, token_store
from longform.errors import DataError

TEXTS = ["the good text is long", "  ", "a bad text", "near and far " * 200]


def test_the_store_holds_the_tokenizers_ids(tiny_tokenizer: Any, tmp_path: Path) -> None:
    store = token_store(TEXTS, tiny_tokenizer, tmp_path / "cache")
    wanted = [tiny_tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS if text.strip()]
    assert np.split(store.tokens, store.ends[:-1])[0].tolist() == wanted[0]
    assert store.tokens.tolist() == [token for ids in wanted for token in ids]
    assert store.lengths().tolist() == [len(ids) for ids in wanted]
    again = token_store(["other"], tiny_tokenizer, tmp_path / "cache")  # what is there is not made again
    assert again.ends.tolist() == store.ends.tolist()
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"]


def test_an_interrupted_cache_is_not_there(tiny_tokenizer: Any, tmp_path: Path) -> None:
    def texts() -> Any:
        yield from TEXTS * 100
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        token_store(texts(), tiny_tokenizer, tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_was_cut_short(tiny_tokenizer: Any, tmp_path: Path) -> None:
    token_store(TEXTS, tiny_tokenizer, tmp_path / "cache")
    file = tmp_path / "cache" / TOKENS
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"tokens of .*delete it"):
        token_store(TEXTS, tiny_tokenizer, tmp_path / "cache")


def test_an_empty_corpus(tiny_tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the corpus is empty"):
        token_store(["", " \n"], tiny_tokenizer, tmp_path / "cache")


def test_the_key_follows_the_content(tmp_path: Path) -> None:
    lines = [json.dumps({"text": text}) for text in TEXTS]
    for name, chosen in (("one", lines), ("two", lines[::-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "texts.jsonl").write_text("\n".join(chosen))
    one, two = (CorpusFiles((str(tmp_path / name),)) for name in ("one", "two"))
    assert corpus_key(one) != corpus_key(two)
    assert corpus_key(one) != corpus_key(one, limit=2)
    (tmp_path / "two" / "texts.jsonl").write_text("\n".join(lines))
    assert corpus_key(one) == corpus_key(two)
    assert corpus_key(["a", "bc"]) != corpus_key(["ab", "c"])
