"""The token cache: whole or absent, and made once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longform.errors import DataError
from longform_text.data.token_store import TOKENS, lengths_of, tokenized_corpus

TEXTS = ["the good text is long", "  ", "a bad text", "near and far " * 200]


def test_the_store_holds_the_tokenizers_ids(tiny_tokenizer: Any, tmp_path: Path) -> None:
    documents = tokenized_corpus(TEXTS, tiny_tokenizer, tmp_path / "cache")
    wanted = [tiny_tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS if text.strip()]
    assert [ids.tolist() for ids in documents["input_ids"]] == wanted
    assert lengths_of(documents).tolist() == [len(ids) for ids in wanted]
    again = tokenized_corpus(["other"], tiny_tokenizer, tmp_path / "cache")  # what is there is not made again
    assert lengths_of(again).tolist() == lengths_of(documents).tolist()
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"]


def test_an_interrupted_cache_is_not_there(tiny_tokenizer: Any, tmp_path: Path) -> None:
    def texts() -> Any:
        yield from TEXTS * 100
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenized_corpus(texts(), tiny_tokenizer, tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_was_cut_short(tiny_tokenizer: Any, tmp_path: Path) -> None:
    tokenized_corpus(TEXTS, tiny_tokenizer, tmp_path / "cache")
    file = tmp_path / "cache" / TOKENS
    file.write_bytes(file.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"cannot be read \(.*\): delete it"):
        tokenized_corpus(TEXTS, tiny_tokenizer, tmp_path / "cache")


def test_an_empty_corpus(tiny_tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the corpus is empty"):
        tokenized_corpus(["", " \n"], tiny_tokenizer, tmp_path / "cache")


@pytest.mark.nightly
def test_processes_that_make_the_same_cache_make_it_once(tiny_tokenizer_folder: Path, tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from transformers import AutoTokenizer
from longform_text.data.token_store import lengths_of, tokenized_corpus

def texts():
    print("reads", flush=True)
    time.sleep(0.3)  # so that the other one starts meanwhile
    yield "the good text is long"

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
print(lengths_of(tokenized_corpus(texts(), tokenizer, Path(sys.argv[2]))).sum())
"""
    arguments = [sys.executable, "-c", code, str(tiny_tokenizer_folder), str(tmp_path / "cache")]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    ended = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert sorted(said for said, _ in ended) == ["5\n", "reads\n5\n"]
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
