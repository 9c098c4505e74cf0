"""Blocks cut from documents: every token once, boundaries marked, the same places at every length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longform.data.special_tokens import SpecialTokens
from longform.data.token_store import SEPARATOR, BlockFrame, Blocks, TokenStore
from longform.errors import ConfigurationError

FRAME = BlockFrame(SpecialTokens((1,), (2,)), 2, 0)


def made(lengths: list[int]) -> TokenStore:
    return TokenStore(np.arange(10, 10 + sum(lengths), dtype=np.uint16), np.cumsum(lengths))


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 23), min_size=1, max_size=12), length=st.integers(3, 17), data=st.data())
def test_every_token_is_in_one_block(lengths: list[int], length: int, data: st.DataObject) -> None:
    store = made(lengths)
    chosen = data.draw(st.lists(st.sampled_from(range(len(lengths))), min_size=1, unique=True).map(sorted))
    spans = [np.arange(end - size, end) for end, size in zip(store.ends, lengths, strict=True)]
    wanted = np.concatenate([spans[document] for document in chosen])
    for packing in ("full", "documents"):
        blocks = Blocks(store, np.array(chosen), FRAME, length=length, packing=packing, keep_rest=True)
        places = [blocks.places(number) for number in range(len(blocks))]
        assert all(1 <= len(found) <= length - 2 for found in places)
        joined = np.concatenate(places)
        assert joined[joined != SEPARATOR].tolist() == wanted.tolist()
        assert (joined == SEPARATOR).sum() == (len(chosen) - 1 if packing == "full" else 0)
        if packing == "full":
            assert all(len(found) == length - 2 for found in places[:-1])
        else:
            owners = [{int(np.searchsorted(store.ends, place, side="right")) for place in found} for found in places]
            assert all(len(found) == 1 for found in owners)


def test_blocks_are_framed_and_separated() -> None:
    blocks = Blocks(made([3, 4, 2]), np.array([0, 1, 2]), FRAME, length=6)
    assert len(blocks) == 2  # the remainder is left out
    assert FRAME.stack([blocks.contents(0), blocks.contents(1)], 6)[0].tolist() == [
        [1, 10, 11, 12, 2, 2],
        [1, 13, 14, 15, 16, 2],
    ]
    whole = Blocks(made([3, 4, 2]), np.array([0, 1, 2]), FRAME, length=7, packing="documents")
    contents = [whole.contents(number).tolist() for number in range(len(whole))]
    assert contents == [[10, 11, 12], [13, 14, 15, 16], [17, 18]]
    assert FRAME.stack([whole.contents(2)], 7)[0].tolist() == [[1, 17, 18, 2, 0, 0, 0]]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"length": 2}, "length=2 leaves no room beside 2"), ({"length": 9, "packing": "tight"}, 'packing="tight"')],
)
def test_blocks_that_cannot_be(options: dict, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Blocks(made([3]), np.array([0]), FRAME, **options)
