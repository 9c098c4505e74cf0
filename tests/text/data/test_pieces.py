"""The tokens of a long text are those of the whole text, though it is tokenised in pieces."""

import random
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, RobertaTokenizer, XLMRobertaTokenizer

from longform.pretrained.tokenizers import PIECE, content_ids, ids_in_pieces, pieces
from longform_text.data.batching import enough, tokenize
from longform_text.data.text import Document

WORDS = ["the", "near", "far", "good", "a", "of", "12", "it's"]
LONGEST_WORD = 8  # characters that the word pieces below take of a word, 100 in BERT
PARTS = st.sampled_from([
    *WORDS, "x" * 30, "é", "e\u0301\u0323", "日本", "語", " ", "  ", "\n", "\t ", "\u00a0", "\u200b" * 9, "\x01",
    "\ufe0f", ".", "...", "!?", "-", "'", "<mask>", "[MASK]", "</s>", "😀", "İ", "ﬁ", "\u0d4e", "\x1c",
])  # fmt: skip
TEXTS = st.lists(PARTS, max_size=60).map("".join)
SENTENCES = ["the near", "12 of far.", "it's a (good)", "x" * 15 + " far"]  # each has a place to cut
ORDINARY = st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=60).map(" ".join)


def word_pieces() -> Any:
    """As BERT has them."""
    characters = [*string.ascii_lowercase, *string.digits, "日"]
    names = ["[UNK]", "[MASK]", *WORDS, *characters, *(f"##{each}" for each in characters), *string.punctuation]
    vocabulary = {name: place for place, name in enumerate(dict.fromkeys(names))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", mask_token="[MASK]")


def byte_pairs() -> Any:
    """As RoBERTa has them."""
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "Ġ"), ("ĠĠ", "ĠĠ"), ("x", "x"), ("xx", "xx"), ("Ġ", "n"),
              ("Ġn", "e"), ("o", "o"), ("g", "oo"), (".", "."), ("â", "Ģ")]  # fmt: skip
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *pre_tokenizers.ByteLevel.alphabet(), *map("".join, merges)]
    return RobertaTokenizer(vocab={name: place for place, name in enumerate(names)}, merges=merges)


def unigrams() -> Any:
    """As XLM-RoBERTa has them."""
    names = ["▁the", "▁near", "▁", "xx", "xxx", "oo", "日本", "th", *string.ascii_lowercase, "日", ".", "..", "'"]
    scores = [(name, -1.0 - place / 3) for place, name in enumerate(names)]
    return XLMRobertaTokenizer(vocab=[(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")] + scores)


TOKENIZERS = {made.__name__: made() for made in (word_pieces, byte_pairs, unigrams)}
every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS.keys())


@every_tokenizer
@pytest.mark.parametrize("unit", ["x", "xo", "xoo", "日", "abcx", "x ", "the near. ", " "])
def test_the_tokens_that_are_kept_are_those_of_the_whole(tokenizer: Any, unit: str) -> None:
    text = unit * (PIECE // len(unit) + 300)
    begun = text[: enough(text, tokenizer, 9)]
    kept, whole = (tokenizer(each, add_special_tokens=False)["input_ids"] for each in (begun, text))
    assert kept[:9] == whole[:9]
    assert enough(text[:50], tokenizer, 9) == len(text[:50])


@every_tokenizer
@given(text=ORDINARY, size=st.integers(40, 80))
def test_tokens_of_pieces_are_those_of_the_text(tokenizer: Any, text: str, size: int) -> None:
    assert "".join(pieces(text, size=size)) == text
    (whole,) = content_ids(tokenizer, [text])
    assert [each for ids in ids_in_pieces(tokenizer, text, size=size) for each in ids] == whole


@given(text=TEXTS, size=st.integers(1, 20), start=st.integers(0, 20))
def test_pieces_are_the_text_and_none_is_too_long(text: str, size: int, start: int) -> None:
    found = list(pieces(text, start=start, size=size))
    assert "".join(found) == text[start:]
    assert all(len(piece) <= size for piece in found)


@every_tokenizer
def test_a_long_text_is_cut_and_counted_as_if_it_were_tokenised_whole(tokenizer: Any) -> None:
    source = random.Random(5)
    text = " ".join(source.choices(WORDS, k=3 * PIECE // 5))
    assert len(text) > 2 * PIECE
    plain = tokenizer(text)["input_ids"]
    for options in ({}, {"unread": 7}):
        (found,) = tokenize([Document("a", text, {}, **options)], tokenizer, max_length=50)
        assert found.input_ids == tokenizer(text, truncation=True, max_length=50)["input_ids"]
        assert found.truncated == len(plain) - 50
    expected = [tokenizer(each, add_special_tokens=False)["input_ids"] for each in (text, "the")]
    assert content_ids(tokenizer, [text, "the"]) == expected


def test_of_a_long_pair_as_much_of_each_side_is_kept_as_of_the_whole(tiny_tokenizer: Any) -> None:
    source = random.Random(6)
    one, other = (" ".join(source.choices(WORDS, k=count)) for count in (PIECE // 2, 30))
    for pair in ((one, other), (other, one), (one, one)):
        (found,) = tokenize([pair], tiny_tokenizer, max_length=40)
        begun = [side[:600] for side in pair]  # cutting pairs, a tokenizer alone would take gigabytes for the whole
        assert found.input_ids == tiny_tokenizer(*begun, truncation=True, max_length=40)["input_ids"]
        assert found.truncated == len(tiny_tokenizer(*pair)["input_ids"]) - 40


def test_only_pieces_are_given_to_the_tokenizer(tiny_tokenizer: Any) -> None:
    given: list[int] = []

    class Watched:
        def __call__(self, texts: Any, *others: Any, **options: Any) -> Any:
            given.append(max(map(len, texts)))
            return tiny_tokenizer(texts, *others, **options)

    for text in ("near " * PIECE, "天" * (3 * PIECE)):
        tokenize([text], Watched(), max_length=50)
    assert max(given) <= PIECE


def test_a_text_of_which_not_all_was_read_counts_as_cut(tiny_tokenizer: Any) -> None:
    for max_length in (50, None):
        (found,) = tokenize([Document("a", "near", {}, unread=3)], tiny_tokenizer, max_length=max_length)
        assert found.truncated == 1
