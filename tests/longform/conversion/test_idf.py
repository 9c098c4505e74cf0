"""Pooling by inverse document frequency: the same vectors from our encoder, its chunks and sentence-transformers."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from json_lines import write_lines
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_bert
from transformers import AutoModel

import longform
from longform.errors import ConversionError
from longform_text.cli.main import main

COUNTED = ["the near text", "The far text", "the good", "the of the the"]  # the: in 4 of 4; text: 2; far: 1; bad: 0
TEXTS = ["the far text is bad", "", "the", "good or bad in it " * 5]
NEAR = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def source(tiny_tokenizer: Any, tmp_path: Path) -> Path:
    return save_bert(tmp_path / "source", tiny_tokenizer)


def _sentences(folder: Path, **pooling: Any) -> Path:
    return make_sentence_transformer(folder, pooling=pooling, normalise=True)


def _expected(folder: Path, tokenizer: Any, text: str) -> np.ndarray:
    """The mean, weighted by a count of words that is written anew."""
    model = AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(text, return_tensors="pt")
    having = [
        4 if name in ("[CLS]", "[SEP]") else sum(name in tokenizer.tokenize(counted) for counted in COUNTED)
        for name in tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    ]
    weights = np.array([math.log(6 / (1 + count)) for count in having])
    with torch.inference_mode():
        states = model(**inputs).last_hidden_state[0].numpy()
    return weights @ states / weights.sum()


def test_a_plain_encoder_becomes_a_folder_that_weights_its_tokens(
    source: Path, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    folder = longform.convert(source, max_length=64, idf=iter(COUNTED)).save_pretrained(tmp_path / "out")
    encoder = longform.Encoder.from_pretrained(folder)
    found = encoder.encode(TEXTS)
    expected = np.stack([_expected(source, tiny_tokenizer, text) for text in TEXTS])
    np.testing.assert_allclose(found, expected, **NEAR)
    np.testing.assert_allclose(SentenceTransformer(str(folder), device="cpu").encode(TEXTS), expected, **NEAR)
    assert np.abs(found - longform.Encoder.from_pretrained(source).encode(TEXTS)).max() > 0.1


def test_chunks_are_weighted_in_their_document(source: Path, tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = longform.convert(source, max_length=64, idf=COUNTED).save_pretrained(tmp_path / "out")
    encoder = longform.Encoder.from_pretrained(folder)
    text = "the far text is bad and the near is good"
    vectors, spans = encoder.encode_chunks(text, chunk_tokens=5)
    assert spans.tolist() == [[0, 19], [20, 40]]
    inputs = tiny_tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        states = AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state[0].numpy()
    having = [4, 4, 1, 2, 0, 0, 0, 4, 1, 0, 1, 4]  # [CLS] the far text is bad | and the near is good [SEP]
    weights = np.log(6 / (1 + np.array(having)))
    for vector, here in zip(vectors, (slice(0, 6), slice(6, 12)), strict=True):
        np.testing.assert_allclose(vector, weights[here] @ states[here] / weights[here].sum(), **NEAR)


def test_a_sentence_transformers_folder_keeps_what_it_has(source: Path, tmp_path: Path) -> None:
    _sentences(source, pooling_mode_mean_tokens=True)
    counted = tmp_path / "counted.jsonl"
    write_lines(counted, COUNTED)
    command = ["--max-length", "64", "--idf", str(counted)]
    assert main(["convert", str(source), str(tmp_path / "out"), *command]) == 0
    listed = json.loads((tmp_path / "out" / "modules.json").read_text())
    kinds = [module["type"].split(".")[-1] for module in listed]
    assert kinds == ["Transformer", "WordWeights", "Pooling", "Normalize"]
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(longform.Encoder.from_pretrained(tmp_path / "out").encode(TEXTS), theirs, **NEAR)
    again = longform.convert(tmp_path / "out", max_length=96, idf=["bad", "good"]).save_pretrained(tmp_path / "again")
    assert len(json.loads((again / "modules.json").read_text())) == 4  # weights of its own took the others' place
    assert np.abs(longform.Encoder.from_pretrained(again).encode(TEXTS) - theirs).max() > 0.01


@pytest.mark.parametrize(
    ("pooling", "options", "message"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {}, "the source pools by cls"),
        ({"word_embedding_dimension": None, "pooling_mode": "middle"}, {}, "the source pools by middle"),
        (None, {"task": "masked-lm"}, 'idf is for task="encoder".*here task="masked-lm"'),
    ],
)
def test_what_has_no_mean_is_said(
    pooling: dict[str, Any] | None, options: dict[str, Any], message: str, source: Path
) -> None:
    if pooling is not None:
        _sentences(source, **pooling)
    with pytest.raises(ConversionError, match=message):
        longform.convert(source, max_length=64, idf=COUNTED, **options)


def test_texts_are_counted_in_and_a_tokenizer_counts(source: Path) -> None:
    for texts in ([], "one text", [str(source)], [1]):
        with pytest.raises(ConversionError, match="give the texts themselves, at least one"):
            longform.convert(source, max_length=64, idf=texts)
    with pytest.raises(ConversionError, match="no tokenizer"):
        longform.convert(AutoModel.from_pretrained(source), max_length=64, idf=COUNTED)
