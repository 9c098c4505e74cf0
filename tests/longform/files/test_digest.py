"""Keys follow the content: whole texts and files, in whatever they are kept."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from longform import digests as digest
from longform.digests import Digest, content_key, file_key

KINDS: dict[str, Callable[[Sequence[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "objects": lambda texts: np.array(texts, dtype=object),
    "pandas": pandas.Series,
    "datasets": lambda texts: Dataset.from_dict({"text": list(texts)})["text"],
}
TEXTS = [f"text {number} " + "word " * (number % 50) for number in range(2_000)]
LETTERS = st.text("a \x00\ud800", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | LETTERS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3),
)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_every_text_counts_whatever_holds_them(make: Callable[[Sequence[str]], Any]) -> None:
    changed = [*TEXTS[:1_000], "text 1000 other", *TEXTS[1_001:]]
    assert content_key(make(TEXTS)) == content_key(TEXTS)
    assert content_key(make(changed)) != content_key(make(TEXTS))
    long = ["a" * 100_000 + "b" + "a" * 100_000, "c"]
    assert content_key(make(long)) != content_key(make([long[0].replace("b", "x"), "c"]))


@given(VALUES, VALUES)
def test_another_value_has_another_key(one: Any, other: Any) -> None:
    assert (content_key(one) == content_key(other)) == (_ordered(one) == _ordered(other))


@given(st.lists(LETTERS, max_size=4), st.lists(LETTERS, max_size=4))
def test_values_do_not_run_into_each_other(one: list[str], other: list[str]) -> None:
    assert (Digest(*one).key == Digest(*other).key) == (one == other)
    assert content_key([one, other]) != content_key([[*one, *other]])


def _ordered(value: Any) -> str:
    """What Python shows of it, with mappings in one order."""
    if isinstance(value, dict):
        return f"{{{[(name, _ordered(value[name])) for name in sorted(value)]}}}"
    return f"{[_ordered(item) for item in value]}" if isinstance(value, list) else repr(value)


def test_sets_and_numbers_of_other_libraries() -> None:
    assert content_key({"a", "b", "c"}) == content_key({"c", "b", "a"}) != content_key(["a", "b", "c"])
    assert content_key(np.int64(3)) == content_key(torch.tensor(3)) == content_key(3) != content_key(3.0)
    assert content_key(np.arange(3)) == content_key(torch.arange(3)) == content_key([0, 1, 2])
    assert content_key(10**5_000) != content_key(10**5_000 + 1)


def test_a_file_is_read_whole_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(bytes(100_000))
    monkeypatch.setattr(digest, "SETTLED", 0)
    before = file_key(path)
    missed = digest._read_key.cache_info().misses
    assert file_key(path) == before
    assert digest._read_key.cache_info().misses == missed
    state = path.stat()
    with path.open("r+b") as file:
        file.seek(77_777)
        file.write(b"x")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # as copies that keep times have it
    assert file_key(path) != before


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    keys = set()
    for number in range(50):
        path.write_text(f"{number:02}")
        keys.add(file_key(path))
    assert len(keys) == 50
