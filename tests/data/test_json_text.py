"""JSON in parts of any size: cut strings, elements one at a time."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from longform.data.json_text import Shortened, array_elements, shortened

TEXT = st.text(st.sampled_from(list('aü"\\/\n\x07 😀{[,]')), max_size=30)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)
SIZES = st.lists(st.integers(1, 9), min_size=1)


def parts(text: str, sizes: list[int]) -> Iterator[str]:
    at = place = 0
    while at < len(text):
        yield text[at : at + sizes[place % len(sizes)]]
        at += sizes[place % len(sizes)]
        place += 1


def assert_cut(found: Any, whole: Any, most: int) -> None:
    """Strings are the beginnings of those in ``whole``, of at most ``most`` characters; what is short is as it was."""
    if isinstance(whole, str):
        assert len(found) <= most
        same = found.encode("utf-16", "surrogatepass") if found else b""  # half of a pair of escapes may be cut
        assert whole.encode("utf-16", "surrogatepass").startswith(same)
        assert found == whole or len(json.dumps(whole)) - 2 > most
    elif isinstance(whole, list):
        for one, other in zip(found, whole, strict=True):
            assert_cut(one, other, most)
    elif isinstance(whole, dict):
        assert_cut(list(found.values()), list(whole.values()), most) if found.keys() == whole.keys() else None
    else:
        assert found == whole


@given(value=VALUES, sizes=SIZES, most=st.integers(1, 40), escaped=st.booleans())
def test_strings_are_cut_and_counted_wherever_the_text_is_parted(
    value: Any, sizes: list[int], most: int, escaped: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    cut = Shortened(parts(text, sizes), most)
    found = "".join(cut)
    assert len(found) + cut.unread == len(text)
    assert_cut(json.loads(found), value, most)


@given(value=VALUES, sizes=SIZES)
def test_short_strings_are_left_alone(value: Any, sizes: list[int]) -> None:
    text = json.dumps(value)
    assert "".join(Shortened(parts(text, sizes), len(text))) == text
    for most in (None, len(text)):
        assert shortened(parts(text, sizes), most, "here") == (text, 0)


@given(values=st.lists(VALUES, max_size=5), sizes=SIZES, indent=st.sampled_from([None, 1]))
def test_elements_are_those_of_the_array_wherever_the_text_is_parted(
    values: list[Any], sizes: list[int], indent: int | None
) -> None:
    text = json.dumps(values, indent=indent)
    assert list(array_elements(parts(text, sizes), name="here")) == values
