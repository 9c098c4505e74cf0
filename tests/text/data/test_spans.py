"""Chunks cover a text: every token once, every character that is not white space once, none cut inside a character."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE

from longform.errors import ConfigurationError, InputError
from longform_text.data.spans import chunks_of

EMOJI = "\U0001f469\u200d\U0001f467"
PIECES = [*"aé🙂ßﬁ9\t。", "word", "e\u0301", EMOJI, "\r\n", "\n\n", " ", ". ", "! ", "中文", "\u200b"]
TEXTS = st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))


def _bytes_tokenizer() -> Tokenizer:
    """Byte-level BPE without merges: an emoji is four tokens."""
    tokenizer = Tokenizer(BPE({letter: at for at, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


BYTES = _bytes_tokenizer()


def _offsets(tokenizer: Any, text: str) -> np.ndarray:
    encoded = tokenizer.encode(text, add_special_tokens=False)
    return np.array(encoded.offsets, dtype=np.int64).reshape(-1, 2)


@given(TEXTS, st.integers(1, 12), st.sampled_from(["tokens", "sentences", "paragraphs"]), st.booleans())
def test_chunks_cover_a_text_once(tiny_tokenizer: Any, text: str, size: int, boundaries: str, in_bytes: bool) -> None:
    offsets = _offsets(BYTES if in_bytes else tiny_tokenizer.backend_tokenizer, text)
    chunks = chunks_of(text, offsets, size=size, boundaries=boundaries)
    assert [chunk.first for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])]
    assert chunks[-1].end == len(offsets)
    assert all(chunk.start <= chunk.stop for chunk in chunks)
    assert all(before.stop <= after.start for before, after in pairwise(chunks))
    kept = "".join(text[chunk.start : chunk.stop] for chunk in chunks)
    assert "".join(kept.split()) == "".join(text.split())
    for chunk in chunks:
        assert chunk.end - chunk.first <= max(size, 4)
        for first, end in offsets[chunk.first : chunk.end]:
            assert not text[first:end].strip() or (chunk.start <= first and end <= chunk.stop)


@given(TEXTS, st.integers(2, 12), st.data())
def test_overlapping_chunks_share_at_most_so_many_tokens(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    chunks = chunks_of(text, _offsets(BYTES, text), size=size, overlap=overlap)
    for before, after in pairwise(chunks):
        assert before.first < after.first <= before.end
        assert before.end - after.first <= overlap
        assert after.end > before.end


def test_sentences_and_paragraphs_stay_whole(tiny_tokenizer: Any) -> None:
    text = "One is here. Two is here!  \n\nThree? (Four.) Five"
    offsets = _offsets(tiny_tokenizer.backend_tokenizer, text)

    def shown(**options: Any) -> list[str]:
        return [text[chunk.start : chunk.stop] for chunk in chunks_of(text, offsets, **options)]

    tokens = len(offsets)
    assert shown(boundaries="paragraphs", size=tokens - 1) == ["One is here. Two is here!", "Three? (Four.) Five"]
    assert "One is here." in shown(boundaries="sentences", size=12)[0]
    assert all(part.rstrip()[-1] in ".!?)e" for part in shown(boundaries="sentences", size=16))


def test_given_spans_are_kept_and_checked(tiny_tokenizer: Any) -> None:
    text = "abc def ghi"
    offsets = _offsets(tiny_tokenizer.backend_tokenizer, text)
    chunks = chunks_of(text, offsets, boundaries=[(0, 3), (4, 11)])
    assert [(chunk.start, chunk.stop) for chunk in chunks] == [(0, 3), (4, 11)]
    assert chunks[0].end == chunks[1].first
    for spans in ([(4, 8), (0, 3)], [(0, 5), (4, 8)], [(0, 12)], [(2, 2)], [(-1, 2)]):
        with pytest.raises(InputError, match="not in order"):
            chunks_of(text, offsets, boundaries=spans)
    with pytest.raises(InputError, match="holds no token"):
        chunks_of(text, offsets, boundaries=[(3, 4)])
    with pytest.raises(InputError, match="no span"):
        chunks_of(text, offsets, boundaries=[])


@pytest.mark.parametrize("options", [{"size": 0}, {"overlap": 256}, {"overlap": -1}, {"boundaries": "words"}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        chunks_of("a", np.zeros((0, 2), dtype=np.int64), **options)


def test_an_empty_text_is_one_chunk_of_no_token() -> None:
    nothing = np.zeros((0, 2), dtype=np.int64)
    assert chunks_of("", nothing) == [(0, 0, 0, 0)]
    assert chunks_of(" \n", nothing) == [(0, 0, 0, 0)]
