"""Blocks cut from documents: every token once, boundaries marked, each found without the others."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longform.data.token_store import TokenStore
from longform.training.pretraining.batches import Blocks

SEPARATOR = 2


def made(lengths: list[int]) -> TokenStore:
    return TokenStore(np.arange(10, 10 + sum(lengths), dtype=np.uint16), np.cumsum(lengths))


@settings(max_examples=60)
@given(lengths=st.lists(st.integers(0, 23), min_size=1, max_size=12), size=st.integers(1, 15), data=st.data())
def test_blocks_hold_every_token_once(lengths: list[int], size: int, data: st.DataObject) -> None:
    store = made(lengths)
    chosen = data.draw(st.lists(st.sampled_from(range(len(lengths))), min_size=1, unique=True).map(sorted))
    texts = [np.split(store.tokens, store.ends[:-1])[document].tolist() for document in chosen]
    stream = [token for text in texts for token in [*text, SEPARATOR]][:-1]
    options: dict[str, Any] = {"size": size, "separator": SEPARATOR}
    whole = [each.tolist() for each in Blocks(store, np.array(chosen), packing="full", keep_rest=True, **options)]
    assert whole == [stream[start : start + size] for start in range(0, len(stream), size)]
    full = Blocks(store, np.array(chosen), packing="full", **options)
    assert [each.tolist() for each in full] == [block for block in whole if len(block) == size]
    apart = Blocks(store, np.array(chosen), packing="documents", **options)
    assert [each.tolist() for each in apart] == [
        text[start : start + size] for text in texts for start in range(0, len(text), size)
    ]


@pytest.mark.parametrize("packing", ["full", "documents"])
def test_without_a_separator_nothing_stands_between(packing: str) -> None:
    blocks = Blocks(made([3, 4, 2]), np.array([0, 2]), size=3, packing=packing, separator=None, keep_rest=True)
    assert [each.tolist() for each in blocks] == [[10, 11, 12], [17, 18]]
