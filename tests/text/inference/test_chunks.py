"""Chunks of a document are pooled from the states of its whole reading, and say exactly which characters they are."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from tiny_models import make_sentence_transformer, save_bert, save_longform
from transformers import AutoModel

from longform.errors import ConfigurationError, DataError, InputError
from longform_text.data.text import Document
from longform_text.inference.chunks import ChunkVectors, chunk_outcomes, encode_chunks
from longform_text.inference.encoders import Encoder

TEXTS = ["", "the near text. it is far! ", "x", "good bad long short, " * 4, "a b c d e f g h i j k l m n"]
LONG = " ".join(f"{word} {number}" for number in range(60) for word in ("the", "near", "far"))  # 420 tokens, 64 fit


def _states(folder: Path, ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        return AutoModel.from_pretrained(folder).eval()(torch.tensor([ids])).last_hidden_state[0].numpy()


def _near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lead"])
def test_a_text_of_one_chunk_has_the_vector_of_the_text(longform_folder: Path, pooling: str) -> None:
    encoder = Encoder.from_pretrained(longform_folder, pooling=pooling, normalise=True)
    found = list(encode_chunks(encoder, TEXTS, chunk_tokens=62, max_tokens_per_batch=100))
    _near(np.concatenate([each.vectors for each in found]), encoder.encode(TEXTS))
    assert [each.spans.tolist() for each in found] == [[[0, len(text.strip())]] for text in TEXTS]


def test_prompts_and_modules_of_a_folder_count_for_the_first_chunk(tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = make_sentence_transformer(
        save_longform(tmp_path, tiny_tokenizer), pooling={"include_prompt": False}, normalise=True,
        config_sentence_transformers={"prompts": {"document": "good: "}},
    )  # fmt: skip
    encoder = Encoder.from_pretrained(folder).for_documents()
    assert encoder.prompt == "good: "
    whole = list(encode_chunks(encoder, TEXTS, chunk_tokens=60))
    _near(np.concatenate([each.vectors for each in whole]), encoder.encode(TEXTS))
    for text, (vectors, spans) in zip(TEXTS, encode_chunks(encoder, TEXTS, chunk_tokens=5), strict=True):
        assert len(vectors) == len(spans)
        assert "".join(text[start:stop] for start, stop in spans).split() == text.split() or len(spans) > 1


def test_a_chunk_is_pooled_from_the_states_of_its_tokens(longform_folder: Path, tiny_tokenizer: Any) -> None:
    text = TEXTS[3].strip()
    encoder = Encoder.from_pretrained(longform_folder)
    (found,) = encode_chunks(encoder, text, chunk_tokens=7)
    ids = tiny_tokenizer(text)["input_ids"]
    states, content = _states(longform_folder, ids), len(ids) - 2
    cuts = [0, *range(7, content, 7), content]
    parts = [slice(first + 1, end + 1) for first, end in pairwise(cuts)]
    parts[0], parts[-1] = slice(0, parts[0].stop), slice(parts[-1].start, len(ids))
    _near(found.vectors, np.stack([states[part].mean(0) for part in parts]))


def test_a_text_longer_than_the_model_is_read_in_stretches(longform_folder: Path, tiny_tokenizer: Any) -> None:
    encoder = Encoder.from_pretrained(longform_folder)
    (found,) = encode_chunks(encoder, LONG, chunk_tokens=10)
    ids = tiny_tokenizer(LONG, add_special_tokens=False, verbose=False)["input_ids"]
    assert len(found.vectors) == -(-len(ids) // 10)
    assert "".join(LONG[start:stop] for start, stop in found.spans) == "".join(
        LONG[at] for start, stop in found.spans for at in range(start, stop)
    )
    assert "".join("".join(LONG[start:stop] for start, stop in found.spans).split()) == "".join(LONG.split())
    # Four chunks of 10 are own to a stretch of 62: 11 tokens stand on both sides of them.
    cls, sep = tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id
    second = _states(longform_folder, [cls, *ids[29 : 29 + 62], sep])
    _near(found.vectors[4], second[1 + 40 - 29 : 1 + 50 - 29].mean(0))
    first = _states(longform_folder, [cls, *ids[:62], sep])
    _near(found.vectors[0], first[: 1 + 10].mean(0))
    alone = encode_chunks(encoder, ["x", LONG, "far"], chunk_tokens=10, max_tokens_per_batch=64)
    _near(list(alone)[1].vectors, found.vectors)


def test_given_spans(longform_folder: Path) -> None:
    encoder = Encoder.from_pretrained(longform_folder)
    spans = [[(0, 3), (4, 8)], [(2, 5)]]
    first, second = encode_chunks(encoder, ["the near text", "a b c d"], boundaries=spans)
    assert (first.spans.tolist(), second.spans.tolist()) == ([[0, 3], [4, 8]], [[2, 5]])
    (whole,) = encode_chunks(encoder, "the near text", boundaries=[[(0, 13)]])
    _near(whole.vectors[0], encoder.encode("the near text"))
    with pytest.raises(InputError, match="not in order"):
        list(encode_chunks(encoder, "the near text", boundaries=[[(4, 8), (0, 3)]]))


@pytest.mark.parametrize("of", [list, np.array, torch.tensor, tuple, iter, lambda spans: [*map(np.array, spans)]])
def test_the_spans_of_one_text_may_stand_alone(longform_folder: Path, of: Any) -> None:
    encoder, spans = Encoder.from_pretrained(longform_folder), [(0, 3), (4, 8)]
    (expected,) = encode_chunks(encoder, ["the near text"], boundaries=[spans])
    for given in (of(spans), [of(spans)]):
        found = encoder.encode_chunks("the near text", boundaries=given)
        np.testing.assert_array_equal(found.spans, spans)
        _near(found.vectors, expected.vectors)
    several = encoder.encode_chunks(["x", "the near text"], boundaries=([of([(0, 1)]), of(spans)]))
    _near(list(several)[1].vectors, expected.vectors)


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        (None, "boundaries is None; it is tokens, sentences, paragraphs, or the spans of each text"),
        ([None, None], "None for text number 0"),
        ([[(0, 1)], [(0, 1.5)]], r"\[\(0, 1.5\)\] for text number 1"),
        ([(0, 1), (0, 1)], r"\(0, 1\) for text number 0"),
        ([[(0, 1)], [0, 1]], r"\[0, 1\] for text number 1"),
        ([[(0, 1)]], "as many texts as 1, and there are more texts"),
        ([[(0, 1)]] * 3, "more than the 2 that there are"),
        ([[(0, 1)], []], "there is no span"),
    ],
)
def test_spans_that_are_none_or_of_other_texts(longform_folder: Path, spans: Any, said: str) -> None:
    encoder = Encoder.from_pretrained(longform_folder)
    with pytest.raises(InputError, match=said):
        list(encoder.encode_chunks(["x", "a b c d"], boundaries=spans))


def test_what_cannot_be_chunked(longform_folder: Path, bert_folder: Path) -> None:
    encoder = Encoder.from_pretrained(longform_folder)
    with pytest.raises(ConfigurationError, match="a chunk has 63 tokens, the model takes 62"):
        list(encode_chunks(encoder, LONG, chunk_tokens=63))
    with pytest.raises(ConfigurationError, match=r"a chunk has [0-9]+ tokens, the model takes 62"):
        list(encode_chunks(encoder, LONG, boundaries=[(0, len(LONG))], alone=True))
    with pytest.raises(ConfigurationError, match="give single texts"):
        list(encode_chunks(encoder, [("a", "b")]))
    with pytest.raises(DataError, match="texts is int"):
        list(encode_chunks(encoder, 3))  # ty: ignore[invalid-argument-type]
    assert isinstance(next(encode_chunks(Encoder.from_pretrained(bert_folder), "any encoder")), ChunkVectors)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_the_mean_of_its_document_beside_each_chunk(longform_folder: Path, normalise: bool, alone: bool) -> None:
    encoder = Encoder.from_pretrained(longform_folder, normalise=normalise)
    how: Any = {"chunk_tokens": 7, "overlap": 2, "alone": alone, "max_tokens_per_batch": 100}
    for plain, found in zip(
        encode_chunks(encoder, [*TEXTS, LONG], **how),
        encode_chunks(encoder, [*TEXTS, LONG], document_weight=0.5, **how),
        strict=True,
    ):
        expected = plain.vectors.astype(np.float64)
        expected = (expected + 0.5 * expected.mean(axis=0)) / 1.5
        if normalise:
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        _near(found.vectors, expected)
        np.testing.assert_array_equal(found.spans, plain.spans)
    (whole,) = encode_chunks(encoder, TEXTS[1], document_weight=3.0)
    _near(whole.vectors[0], encoder.encode(TEXTS[1]))


def test_fewer_dimensions_are_those_of_the_whole_mean(longform_folder: Path) -> None:
    encoder = Encoder.from_pretrained(longform_folder, normalise=True)
    how: Any = {"chunk_tokens": 7, "document_weight": 1.0}
    (whole,) = encode_chunks(encoder, LONG, **how)
    (found,) = encode_chunks(encoder.changed(truncate_dim=5), LONG, **how)
    first = whole.vectors[:, :5]
    _near(found.vectors, first / np.linalg.norm(first, axis=1, keepdims=True))


@pytest.mark.parametrize("weight", [-0.1, np.nan, np.inf])
def test_weights_that_cannot_be(longform_folder: Path, weight: float) -> None:
    encoder = Encoder.from_pretrained(longform_folder)
    with pytest.raises(ConfigurationError, match=f"document_weight is {weight}; it is 0 or more, and finite"):
        list(encode_chunks(encoder, "x", document_weight=weight))


def test_a_title_is_read_in_front_and_no_part_of_the_spans(longform_folder: Path, tiny_tokenizer: Any) -> None:
    encoder = Encoder.from_pretrained(longform_folder)
    rows = [{"text": text, "name": f" near {number} "} for number, text in enumerate([TEXTS[3], LONG])]
    titled = list(encoder.encode_chunks(rows, chunk_tokens=7, title_field="name"))
    for number, (row, found) in enumerate(zip(rows, titled, strict=True)):
        plain = encoder.encode_chunks(row["text"], chunk_tokens=7)
        np.testing.assert_array_equal(found.spans, plain.spans)
        (prompted,) = encode_chunks(replace(encoder, prompt=f"near {number}. "), row["text"], chunk_tokens=7)
        title, content = (
            tiny_tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
            for part in (f"near {number}. ", row["text"])
        )
        before, after = [tiny_tokenizer.cls_token_id, *title], [tiny_tokenizer.sep_token_id]
        states = _states(longform_folder, [*before, *content[: 62 - len(title)], *after])
        _near(2 * found.vectors - prompted.vectors, np.tile(states[1 : len(before)].mean(0), (len(found.spans), 1)))
        document, rows_of = Document("x", row["text"], {"name": row["name"]}), {"chunk_tokens": 7, "alone": True}
        (alone,) = encode_chunks(encoder, document, title_field="name", **rows_of)
        (before_each,) = encode_chunks(replace(encoder, prompt=f"near {number}. "), row["text"], **rows_of)
        _near(alone.vectors, before_each.vectors)
    frame = pandas.DataFrame(rows)
    _near(next(encoder.encode_chunks(frame, chunk_tokens=7, title_field="name")).vectors, titled[0].vectors)
    file = Document("folder/near 0.txt", TEXTS[3], {})
    _near(encoder.encode_chunks(file, chunk_tokens=7, title_field="name").vectors, titled[0].vectors)
    for texts, said in (
        (rows, 'no title in the field "other"; the fields there are: name'),
        ([{"text": "x", "other": 3}], 'no title in the field "other"'),
    ):
        with pytest.raises(DataError, match=said):
            list(encoder.encode_chunks(texts, title_field="other"))
    with pytest.raises(DataError, match='a text has no field "name"'):
        encoder.encode_chunks("x", title_field="name")


def test_layers_are_cut_like_states(tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "bert", tiny_tokenizer, output_hidden_states=True)
    encoder = Encoder.from_pretrained(folder)
    (found,) = encode_chunks(encoder, TEXTS[3], chunk_tokens=5)
    assert np.isfinite(found.vectors).all()


@pytest.mark.parametrize("prompt", ["", "good: "])
def test_chunks_that_are_read_alone_lose_no_token(prompt: str, bert_folder: Path, tiny_tokenizer: Any) -> None:
    encoder = replace(Encoder.from_pretrained(bert_folder), prompt=prompt)  # 32 tokens, two of them special
    before, ids = (tiny_tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, LONG))
    (found,) = chunk_outcomes(encoder, [LONG], chunk_tokens=encoder.limit, alone=True)
    size = encoder.limit - 2 - len(before)
    assert found.tokens.tolist() == [len(ids[first : first + size]) for first in range(0, len(ids), size)]
    start, end = tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id
    for vector, first in zip(found.vectors, range(0, len(ids), size), strict=True):
        _near(vector, _states(bert_folder, [start, *before, *ids[first : first + size], end]).mean(axis=0))
