"""Calls as sentence-transformers, scikit-learn and transformers' pipelines have them, on Encoder and Classifier."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_bert, save_longform
from transformers import pipeline

import longform
from longform.errors import ConfigurationError, LongformError

TEXTS = ["the near text", "good", "a bad one of it " * 5, "far"]
NAMED = {0: "bad", 1: "good", 2: "odd"}


@pytest.fixture(scope="module")
def folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentenceTransformer that compares by the dot product and does not normalise."""
    bert = save_bert(tmp_path_factory.mktemp("dot"), tiny_tokenizer)
    files = {"config_sentence_transformers": {"similarity_fn_name": "dot"}}
    return make_sentence_transformer(bert, pooling={"pooling_mode_mean_tokens": True}, normalise=False, **files)


@pytest.fixture(scope="module")
def ours(folder: Path) -> longform.Encoder:
    return longform.Encoder.from_pretrained(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def prompted(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> longform.Encoder:
    bert = save_bert(tmp_path_factory.mktemp("prompted"), tiny_tokenizer)
    files = {"config_sentence_transformers": {"prompts": {"query": "near: ", "document": "far: "}}}
    pooling = {"pooling_mode_mean_tokens": True}
    return longform.Encoder.from_pretrained(make_sentence_transformer(bert, pooling=pooling, normalise=True, **files))


def numbers(values: Any) -> np.ndarray:
    return np.stack([np.asarray(row) for row in values]) if isinstance(values, list) else np.asarray(values)


@pytest.mark.parametrize("texts", [TEXTS, "the near text"], ids=["texts", "one text"])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 2},
        {"show_progress_bar": True},
        {"show_progress_bar": False, "normalize_embeddings": True},
        {"normalize_embeddings": False},
        {"normalize_embeddings": True, "truncate_dim": 5},
        {"convert_to_tensor": True},
        {"convert_to_tensor": True, "normalize_embeddings": True},
        {"convert_to_numpy": False},
        {"convert_to_numpy": True},
    ],
    ids=str,
)
def test_options_of_encode(
    ours: longform.Encoder, theirs: Any, options: dict[str, Any], texts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ours.encode(texts, **options)
    shown = capsys.readouterr().err
    expected = theirs.encode(texts, **options)
    assert type(found) is type(expected)
    assert [type(row) for row in found] == [type(row) for row in expected]
    np.testing.assert_allclose(numbers(found), numbers(expected), atol=1e-5)
    assert bool(shown) == options.get("show_progress_bar", False)


def test_batch_size_is_the_most_texts_at_a_time(ours: longform.Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    forward = longform.Encoder.forward
    monkeypatch.setattr(
        longform.Encoder, "forward", lambda self, batch: sizes.append(len(batch.indices)) or forward(self, batch)
    )
    ours.encode(TEXTS * 3, batch_size=5)
    assert sum(sizes) == 12
    assert max(sizes) <= 5
    with pytest.raises(ConfigurationError, match=r"window \(0\) are at least 1"):
        ours.encode(TEXTS, batch_size=0)


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan", None])
def test_similarity_is_the_folders(kind: str | None, tiny_tokenizer: Any, tmp_path: Path) -> None:
    bert = save_bert(tmp_path, tiny_tokenizer)
    files = {"config_sentence_transformers": {"similarity_fn_name": kind}}
    make_sentence_transformer(bert, pooling={"pooling_mode_mean_tokens": True}, normalise=False, **files)
    ours, theirs = longform.Encoder.from_pretrained(tmp_path), SentenceTransformer(str(tmp_path), device="cpu")
    vectors = ours.encode(TEXTS)
    for one, other in (
        (vectors, vectors[:3]), (vectors[0], vectors), (torch.tensor(vectors), list(torch.tensor(vectors))),
        (vectors.tolist(), vectors),
    ):  # fmt: skip
        found, expected = ours.similarity(one, other), theirs.similarity(one, other)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_sizes_have_both_names(ours: longform.Encoder, theirs: Any) -> None:
    assert ours.get_embedding_dimension() == theirs.get_embedding_dimension() == 24
    assert ours.max_seq_length == theirs.max_seq_length == 32


def test_a_repr_is_one_line_and_names_the_folder(ours: longform.Encoder, folder: Path, classifier_folder: Path) -> None:
    assert repr(ours) == f'Encoder("{folder}": 24 values for up to 32 tokens, cpu)'
    classifier = longform.Classifier.from_pretrained(classifier_folder)
    assert repr(classifier) == f'Classifier("{classifier_folder}": 3 values for up to 64 tokens, cpu)'


@pytest.mark.parametrize("kind", [longform.Encoder, longform.Classifier])
def test_a_name_in_place_of_a_model_says_how_it_is_loaded(kind: Any) -> None:
    for name in ("minilm-16k", Path("minilm-16k")):
        with pytest.raises(ConfigurationError, match=rf'loaded by {kind.__name__}\.from_pretrained\("minilm-16k"\)'):
            kind(name)


def test_chunks_show_progress(ours: longform.Encoder, capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (True, False):
        assert len(list(ours.encode_chunks(TEXTS, chunk_tokens=8, progress=progress))) == 4
        assert ("4/4" in capsys.readouterr().err) == progress


SHAPES: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {  # what such calls give, or the way out that they name
    "prompt_name": (lambda e, c: e.encode(TEXTS, prompt_name="query").shape, (4, 24)),
    "array": (lambda e, c: e.encode(np.array(TEXTS)).shape, (4, 24)),
    "series": (lambda e, c: e.encode(pandas.Series(TEXTS)).shape, (4, 24)),
    "none": (lambda e, c: e.encode([]).shape, (0, 24)),
    "query": (lambda e, c: e.encode_query("good", convert_to_tensor=True).shape, (24,)),
    "document": (lambda e, c: e.encode_document(TEXTS, batch_size=2).shape, (4, 24)),
    "device": (lambda e, c: str(e.device), "cpu"),
    "predict batch_size": (lambda e, c: len(c.predict(TEXTS, batch_size=2)), 4),
    "predict_proba batch_size": (lambda e, c: c.predict_proba(TEXTS, batch_size=2).shape, (4, 3)),
    "pipeline batch_size": (lambda e, c: len(c(TEXTS, batch_size=2, top_k=None)[0]), 3),
    "classes_": (lambda e, c: c.classes_, ["bad", "good", "odd"]),
    "no texts": (lambda e, c: e.encode(), "give a list of texts"),
    "keyword": (lambda e, c: type(e)(model_name_or_path="x"), r'Encoder\.from_pretrained\("x"\)'),
    "set length": (lambda e, c: setattr(e, "max_seq_length", 99), "max_length is 99, but .* takes 32 tokens"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_calls_by_habit_work_or_name_the_way_out(
    name: str, prompted: longform.Encoder, classifier_folder: Path
) -> None:
    call, expected = SHAPES[name]
    classifier = longform.Classifier.from_pretrained(classifier_folder)
    if not isinstance(expected, str) or name == "device":
        assert call(prompted, classifier) == expected
        return
    with pytest.raises((LongformError, AttributeError), match=expected) as refused:
        call(prompted, classifier)
    assert "\n" not in str(refused.value)


def test_a_shorter_length_may_be_set(folder: Path) -> None:
    encoder = longform.Encoder.from_pretrained(folder)
    encoder.max_seq_length = 8
    right = longform.Encoder.from_pretrained(folder, max_length=8).encode(TEXTS)
    np.testing.assert_array_equal(encoder.encode(TEXTS), right)


VALUES = {"problem_type": "regression"}
KINDS: dict[str, dict[str, Any]] = {
    "one label": {"id2label": NAMED},
    "several labels": {"id2label": NAMED, "problem_type": "multi_label_classification"},
    "one value": {"num_labels": 1, **VALUES},
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_a_classifier_is_called_as_a_pipeline(settings: dict[str, Any], tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = save_longform(tmp_path, tiny_tokenizer, head="classification", **settings)
    ours = longform.Classifier.from_pretrained(folder)
    theirs = pipeline("text-classification", str(folder), device="cpu", truncation=True)
    for options in ({}, {"top_k": 2}, {"top_k": None}):
        for texts in (TEXTS, "good"):
            _same_answers(ours(texts, **options), theirs(texts, **options))


def _same_answers(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _same_answers(one, other)
    else:
        assert found == {"label": expected["label"], "score": pytest.approx(expected["score"], abs=1e-5)}


def test_probabilities_are_in_the_order_of_classes(tiny_tokenizer: Any, tmp_path: Path) -> None:
    for name in ("one label", "several labels"):
        folder = save_longform(tmp_path / name, tiny_tokenizer, head="classification", **KINDS[name])
        classifier = longform.Classifier.from_pretrained(folder)
        found, records = classifier.predict_proba(TEXTS), classifier.predict(TEXTS)
        assert found.shape == (4, 3)
        assert classifier.classes_ == ["bad", "good", "odd"]
        np.testing.assert_allclose(found, [[each["scores"][name] for name in classifier.classes_] for each in records])
        np.testing.assert_allclose(classifier.predict_proba("far"), found[3], atol=1e-6)
    values = longform.Classifier.from_pretrained(
        save_longform(tmp_path / "values", tiny_tokenizer, head="classification", **KINDS["one value"])
    )
    with pytest.raises(ConfigurationError, match="a regression has no probabilities"):
        values.predict_proba(TEXTS)
