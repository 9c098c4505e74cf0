"""Encoder and Classifier from Python: whatever holds texts, read once, as sentence-transformers and the commands do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from json_lines import read_lines, write_lines
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_bert, save_longform

import longform
from longform.errors import CheckpointError, ConfigurationError, DataError
from longform_text.data.text import Document
from longform_text.inference.run import InferenceSettings, predict

TEXTS = ["the near text", "", "a " * 11, "x", "good bad long short", "of " * 25, "far"]
PROMPTS = {"query": "good: ", "passage": "bad "}
OF_TEXTS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "Documents": lambda texts: [Document(str(number), text, {}) for number, text in enumerate(texts)],
    "iterator": iter,
    "generator": lambda texts: (text for text in texts),
    "array": np.array,
    "Series": pandas.Series,
    "DataFrame": lambda texts: pandas.DataFrame({"body": texts}),
    "polars": lambda texts: polars.DataFrame({"body": texts}),
    "polars' Series": polars.Series,
    "pyarrow": lambda texts: pyarrow.table({"body": texts}),
    "pyarrow's column": lambda texts: pyarrow.chunked_array([texts]),
    "rows": lambda texts: [{"body": text} for text in texts],
    "Dataset": lambda texts: datasets.Dataset.from_dict({"body": texts}),
    "column": lambda texts: datasets.Dataset.from_dict({"body": texts})["body"],
    "IterableDataset": lambda texts: datasets.Dataset.from_dict({"body": texts}).to_iterable_dataset(),
    "column of a stream": lambda texts: datasets.Dataset.from_dict({"body": texts}).to_iterable_dataset()["body"],
}


def near(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def prompted(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_bert(tmp_path_factory.mktemp("prompted"), tiny_tokenizer)
    files = {"config_sentence_transformers": {"prompts": PROMPTS, "default_prompt_name": None}}
    return make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True, **files)


@pytest.fixture(scope="module")
def encoder(prompted: Path) -> longform.Encoder:
    return longform.Encoder.from_pretrained(prompted)


@pytest.mark.parametrize("made", OF_TEXTS.values(), ids=OF_TEXTS)
def test_whatever_holds_texts_gives_the_same_in_their_order(encoder: longform.Encoder, made: Any) -> None:
    found = encoder.encode(made(TEXTS), text_field="body", max_tokens_per_batch=40)
    near(found, np.stack([encoder.encode(text) for text in TEXTS]))
    chunks = encoder.encode_chunks(made(TEXTS), text_field="body")
    near(np.concatenate([each.vectors for each in chunks]), found)  # each text is one chunk


def test_vectors_are_those_of_sentence_transformers(encoder: longform.Encoder, prompted: Path) -> None:
    theirs: Any = SentenceTransformer(str(prompted), device="cpu")
    near(encoder.encode(TEXTS), theirs.encode(TEXTS))
    near(encoder.encode("far"), theirs.encode("far"))
    near(encoder.encode_query(TEXTS), theirs.encode_query(TEXTS))
    near(encoder.encode_document(TEXTS), theirs.encode_document(TEXTS))
    for how in ({"prompt_name": "query"}, {"prompt": "for it "}, {"prompt_name": "passage", "truncate_dim": 5}):
        near(encoder.encode(TEXTS, **how), theirs.encode(TEXTS, **how))
    near(
        encoder.encode_query(TEXTS, truncate_dim=5, normalise=True),
        theirs.encode_query(TEXTS, truncate_dim=5, normalize_embeddings=True),
    )


def test_one_text_gives_one_vector_and_its_chunks(encoder: longform.Encoder) -> None:
    assert encoder.encode("the near text").shape == (24,)
    vectors, spans = encoder.encode_chunks("the near text is far", chunk_tokens=3)
    assert vectors.shape == (2, 24)
    assert spans.tolist() == [[0, 13], [14, 20]]
    assert encoder.encode([]).shape == encoder.encode(iter(())).shape == (0, 24)
    assert encoder.encode([], truncate_dim=5).shape == (0, 5)


def test_an_iterator_is_read_once_and_little_ahead_of_the_model(
    encoder: longform.Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, done, ahead = 0, 0, []

    def stream() -> Iterator[str]:
        nonlocal given
        for number in range(3000):
            given += 1
            yield TEXTS[number % len(TEXTS)]

    forward = longform.Encoder.forward

    def counted(self: longform.Encoder, batch: Any) -> Any:
        nonlocal done
        ahead.append(given - done)
        done += len(batch.indices)
        return forward(self, batch)

    monkeypatch.setattr(longform.Encoder, "forward", counted)
    texts = stream()
    found = encoder.encode(texts)
    assert (given, done, len(found)) == (3000, 3000, 3000)
    assert max(ahead) <= 512
    assert encoder.encode(texts).shape == (0, 24)  # it was consumed


MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such column": (pandas.DataFrame({"a": ["x"], "b": [1]}), {}, 'no column "text"; its columns are: a, b'),
    "nor in a data set": (
        datasets.Dataset.from_dict({"a": ["x"]}), {"text_field": "body"}, 'Dataset has no column "body"; .* are: a'
    ),
    "nor in rows": ([{"a": "x"}], {}, r'text number 0: a row has no field "text" .* are: a \(str\)'),
    "nothing in a row": (pandas.Series(["near", None]), {}, "text number 1: (NoneType|float) is no text"),
    "a number": (["near", "far", 3], {}, "text number 2: int is no text"),
    "numbers in a table": (pandas.DataFrame({"text": [1.5]}), {}, "text number 0: float is no text"),
    "nothing": (None, {}, "texts is NoneType"),
    "bytes": (b"near", {}, "texts is bytes"),
    "one number": (3, {}, "texts is int"),
    "one row": ({"text": "near"}, {}, "texts is dict with the keys: text"),
    "None among texts": (["near", None], {}, "text number 1: NoneType is no text"),
    "NaN among texts": (["near", float("nan")], {}, "text number 1: float is no text"),
    "a list of one": ([["near"]], {}, "text number 0: list is no text"),
    "splits": (datasets.DatasetDict(train=datasets.Dataset.from_dict({"text": ["a"]})), {}, "with the keys: train"),
}  # fmt: skip


@pytest.mark.parametrize(("texts", "options", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_holds_no_texts_is_refused(
    encoder: longform.Encoder, texts: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        encoder.encode(texts, **options)


def test_options_that_a_folder_lacks(encoder: longform.Encoder) -> None:
    with pytest.raises(ConfigurationError, match=r'has no prompt "other"; its prompts: .*query.*passage'):
        encoder.encode("far", prompt_name="other")
    with pytest.raises(ConfigurationError, match="not both"):
        encoder.encode("far", prompt_name="query", prompt="x")
    with pytest.raises(ConfigurationError, match="truncate_dim is 25; a vector has 24 dimensions"):
        encoder.encode("far", truncate_dim=25)


def test_a_classifier_says_what_the_command_writes(classifier_folder: Path, tmp_path: Path) -> None:
    classifier = longform.Classifier.from_pretrained(classifier_folder)
    write_lines(tmp_path / "a.jsonl", ({"body": text} for text in TEXTS))
    predict(
        classifier_folder, tmp_path / "a.jsonl", tmp_path / "out.jsonl",
        InferenceSettings(progress=False, text_field="body"),
    )  # fmt: skip
    written = read_lines(tmp_path / "out.jsonl")
    for made in (list, pandas.Series, OF_TEXTS["DataFrame"], OF_TEXTS["Dataset"]):
        found = classifier.predict(made(TEXTS), text_field="body")
        assert [each["label"] for each in found] == [record["label"] for record in written]
        for each, record in zip(found, written, strict=True):
            assert list(each) == ["label", "score", "scores"]
            assert each["scores"] == pytest.approx(record["scores"], abs=1e-5)
    assert classifier.predict("far")["score"] == pytest.approx(written[-1]["score"], abs=1e-5)
    assert classifier.predict([]) == []
    with pytest.raises(ConfigurationError, match="threshold is 2"):
        classifier.predict(TEXTS, threshold=2)


def test_pairs_in_tuples_and_in_columns(classifier_folder: Path) -> None:
    classifier = longform.Classifier.from_pretrained(classifier_folder)
    pairs = [("the near text", "far"), ("good", "bad"), ("good", "far")]
    found = classifier.predict(pairs)
    assert found[1] != found[2]
    table = pandas.DataFrame(pairs, columns=["text", "more"])
    for same in (table, datasets.Dataset.from_pandas(table), table.to_dict("records")):
        for each, expected in zip(classifier.predict(same, pair_field="more"), found, strict=True):
            assert each["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_several_labels_and_values(tiny_tokenizer: Any, tmp_path: Path) -> None:
    settings = {"problem_type": "multi_label_classification", "id2label": {0: "x", 1: "y"}}
    several = save_longform(tmp_path / "several", tiny_tokenizer, head="classification", **settings)
    for each in longform.Classifier.from_pretrained(several).predict(TEXTS, threshold=0.3):
        assert each["labels"] == [label for label, score in each["scores"].items() if score >= 0.3]
    one = save_bert(tmp_path / "one", tiny_tokenizer, head="classification", num_labels=1)
    assert [list(each) for each in longform.Classifier.from_pretrained(one).predict(["far"])] == [["score"]]


def test_a_folder_without_a_trained_head_is_no_classifier(longform_folder: Path) -> None:
    with pytest.raises(CheckpointError, match="classifier"):
        longform.Classifier.from_pretrained(longform_folder)
