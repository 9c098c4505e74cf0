"""Labels: which task they make, as targets, in the split, and in predictions, which have their type."""

import json
from pathlib import Path
from typing import Any

import datasets
import hypothesis
import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import strategies as st
from json_lines import read_lines, write_lines

import longform
from longform.errors import ConfigurationError, DataError
from longform_text.training.labels import Examples, LabelScheme, examples_of, learn_scheme, split
from longform_text.training.pretraining.run import pretrain
from longform_text.training.pretraining.settings import PretrainingSettings


def _scheme(task: str, names: str, kind: str = "str") -> LabelScheme:
    return LabelScheme(task, names.split(), kind)


@pytest.mark.parametrize(
    ("labels", "task", "expected", "said"),
    [
        (["b", "a", "b"], "auto", _scheme("single-label", "a b"), "2 classes: a, b"),
        ([10, 2, 1], "auto", _scheme("single-label", "1 2 10", "int"), "3 classes: 1, 2, 10"),
        (["--5", "-5", "3", "-"], "auto", _scheme("single-label", "-5 3 - --5"), "4 classes: -5, 3, -, --5"),
        (["1", "2"], "auto", _scheme("single-label", "1 2"), "2 classes: 1, 2"),
        ([True, False], "auto", _scheme("single-label", "False True", "bool"), "2 classes: False, True"),
        (np.array([True, False]), "auto", _scheme("single-label", "False True", "bool"), "2 classes: False, True"),
        (np.array([1, 2], dtype=np.uint8), "auto", _scheme("single-label", "1 2", "int"), "2 classes: 1, 2"),
        ([0.0, 1.0], "single-label", _scheme("single-label", "0.0 1.0", "float"), "2 classes: 0.0, 1.0"),
        ([["b", "a"], [], ["c"]], "auto", _scheme("multi-label", "a b c"), "3 labels, any number a text: a, b, c"),
        ([[0, 2], [1], []], "auto", _scheme("multi-label", "0 1 2", "int"), "3 labels, any number a text: 0, 1, 2"),
        ([["0", "1"], ["1", "0"]], "auto", _scheme("multi-label", "0 1"), "2 labels, any number a text: 0, 1"),
        (["1;2", "3"], "multi-label", _scheme("multi-label", "1 2 3"), "3 labels, any number a text: 1, 2, 3"),
        ([0.5, -1.25, 3], "auto", _scheme("regression", "score", "float"), "regression: numbers from -1.25 to 3"),
        ([0.0, 1.0], "regression", _scheme("regression", "score", "float"), "regression: numbers from 0 to 1"),
    ],
)
def test_the_task_follows_from_the_labels(labels: Any, task: str, expected: LabelScheme, said: str) -> None:
    scheme = learn_scheme(labels, task)
    assert scheme.described(scheme.encode(labels, where="here")) == said
    assert scheme[:2] == expected[:2]
    assert scheme.label_type == expected.label_type or scheme.task == "regression"


@pytest.mark.parametrize(
    ("labels", "task", "named"),
    [
        (["a", 1], "auto", "mixed types: str .*int"),
        ([1, True], "auto", "mixed types: int .*bool"),
        (["a", ["b"]], "auto", "mixed types: str .*alone and in lists"),
        ([{"a": 1}, {"a": 0}], "auto", "mixed types: dict"),
        ([b"good", b"bad"], "auto", "mixed types: bytes"),
        (["a", "a"], "auto", 'all training texts have the label "a"'),
        ([0.5, 0.5], "auto", "same value"),
        ([[], []], "auto", "no training text has any label"),
        ([["a"], ["b"]], "single-label", 'use task="multi-label"'),
        (["x", "y"], "regression", "the label 'x' of text 0 is not a number"),
        ([1.0, float("-inf")], "regression", "training part: the label of text 1 is -inf; .* a finite number"),
        ([1.0, 2.0, 10**400], "regression", "training part: the label .* of text 2 is not a number"),
        ([0.5, np.float32("inf")], "regression", "training part: the label of text 1 is inf"),
        ([0.0, 1.0, 1.0], "auto", r"\(0.0, 1.0\), which may be 2 classes or numbers .*--task single-label"),
        ([3, 1.0], "auto", r"\(1.0, 3\), which may be 2 classes"),
        ([[0, 1, 0], [1, 0]], "auto", r"\[0, 1, 0\] is no list of names .*vectors of 0 and 1 of one length"),
        ([[0.2, 0.8], [0.9, 0.1]], "auto", r"\[0.2, 0.8\] is no list of names"),
        ([[1, -1, 1], [1, 1, -1]], "auto", "is no list of names"),
        ([[[0, 1]], [[1, 0]]], "auto", "is no list of names"),
        ([[1, None, 0], [None, 1, 0]], "auto", r"\[1, None, 0\] is no list of names"),
        ([["a", None], [None, 1]], "auto", r"\[None, 1\] is no list of names"),
        (["[0, 1, 0]", "['a', 'b']"], "auto", r"texts of lists \('\[0, 1, 0\]'\): give lists"),
    ],
)
def test_labels_that_nothing_can_be_learned_from(labels: list[Any], task: str, named: str) -> None:
    with pytest.raises(DataError, match=named):
        learn_scheme(labels, task)


def test_labels_become_targets() -> None:
    assert LabelScheme("single-label", ["1", "2"]).encode([2, "1"], where="here") == [1, 0]
    assert LabelScheme("multi-label", ["a", "b"]).encode([["b"], "a; b", []], where="here") == [[0, 1], [1, 1], [0, 0]]
    assert LabelScheme("regression", ["score"]).encode([1, "2.5"], where="here") == [1.0, 2.5]


def test_a_label_that_training_never_saw() -> None:
    with pytest.raises(DataError, match=r"the validation part: the label 'c' does not occur.*'a', 'b'"):
        LabelScheme("single-label", ["a", "b"]).encode(["a", "c"], where="the validation part")


def test_the_split_is_stratified_and_repeatable() -> None:
    labels = ["a"] * 40 + ["b"] * 20 + ["c"]
    examples = Examples([f"text {i}" for i in range(61)], labels, [f"second {i}" for i in range(61)])
    scheme = learn_scheme(labels, "auto")
    train, held = split(examples, scheme, fraction=0.25, seed=1)
    assert [held.labels.count(name) for name in "abc"] == [10, 5, 0]
    assert sorted([*train.texts, *held.texts]) == sorted(examples.texts)
    assert [text.replace("text", "second") for text in held.texts] == held.pairs
    assert split(examples, scheme, fraction=0.25, seed=1) == (train, held)
    assert split(examples, scheme, fraction=0.25, seed=2) != (train, held)


def test_too_few_texts_to_split() -> None:
    examples = Examples(["x", "y"], ["a", "b"])
    with pytest.raises(DataError, match="too few to hold out 10%"):
        split(examples, learn_scheme(examples.labels, "auto"), fraction=0.1, seed=0)


HOT = [[0, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]]
TEXTS = [f"text {number}" for number in range(len(HOT))]


@pytest.mark.parametrize(
    "labels",
    [
        HOT,
        [list(map(float, row)) for row in HOT],
        [list(map(bool, row)) for row in HOT],
        [tuple(row) for row in HOT],
        np.array(HOT),
        np.array(HOT, dtype=np.float32),
        torch.tensor(HOT),
        [torch.tensor(row) for row in HOT],
        pandas.Series([np.array(row) for row in HOT]),
        polars.Series(HOT),
    ],
    ids=lambda labels: f"{type(labels).__name__} of {type(labels[0]).__name__}",
)
def test_vectors_of_0_and_1_are_labels_by_place(labels: Any) -> None:
    examples = examples_of((TEXTS, labels))
    scheme = learn_scheme(examples.labels, "auto")
    assert scheme == LabelScheme("multi-label", ["0", "1", "2"])  # the last one too, which no text has
    assert scheme.encode(examples.labels, where="here") == HOT
    assert scheme.encode([HOT[2]], where="here") == [HOT[2]]
    with pytest.raises(DataError, match="validation: vectors of 4, those in training of 3"):
        scheme.encode([[1, 0, 0, 1]], where="validation")


CLASSES = datasets.ClassLabel(names=["sport", "art", "unused"])


def test_classes_of_datasets_have_their_names_and_order(tmp_path: Path) -> None:
    columns = {"text": TEXTS, "label": [0, 1, -1, 1], "tags": [[0, 1], [], [1], [-1, 0]]}
    features = {"text": datasets.Value("string"), "label": CLASSES, "tags": datasets.List(CLASSES)}
    data = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    data.save_to_disk(tmp_path / "saved")
    data.to_parquet(tmp_path / "a.parquet")
    ways = (data, data.to_iterable_dataset(), data.with_format("torch"), tmp_path / "saved", tmp_path / "a.parquet",
            (data["text"], data["label"]), pyarrow.parquet.read_table(tmp_path / "a.parquet"))  # fmt: skip
    for given in ways:
        with pytest.warns(UserWarning, match="1 texts without a label are left out"):
            examples = examples_of(given)
        assert examples == Examples([TEXTS[0], TEXTS[1], TEXTS[3]], ["sport", "art", "art"])
        assert learn_scheme(examples.labels, "auto").names == CLASSES.names
    for given in (*ways[:5], ways[6]):
        tags = examples_of(given, label_field="tags").labels
        assert tags == [["sport", "art"], [], ["art"], ["sport"]]
        assert learn_scheme(tags, "auto") == LabelScheme("multi-label", CLASSES.names)


def test_a_category_of_pandas_is_a_name_and_its_lack_no_class() -> None:
    for column in (
        pandas.Categorical(["b", None, "a", "b"], categories=["a", "b", "unused"]),
        pandas.array(["b", None, "a", "b"], dtype="string"),
        ["b", float("nan"), "a", "b"],
        ["b", [None], "a", "b"],
        polars.Series(["b", None, "a", "b"], dtype=polars.Categorical),
    ):
        table = {"text": TEXTS, "label": column}
        frame = polars.DataFrame(table) if isinstance(column, polars.Series) else pandas.DataFrame(table)
        for given in (frame, (TEXTS, column)):
            with pytest.warns(UserWarning, match="1 texts without a label"):
                labels = examples_of(given).labels
            assert labels == ["b", "a", "b"]
            assert learn_scheme(labels, "auto").names == ["a", "b"]
    assert learn_scheme([["a", None], ["b", float("nan")], None], "auto").names == ["a", "b"]


def test_csv_and_jsonl_and_parquet_say_the_same(tmp_path: Path) -> None:
    rows = [{"t": 'one, "two"', "u": "x", "y": "good"}, {"t": "lines\nof it", "u": "\x00z", "y": "bad"}]
    write_lines(tmp_path / "a.jsonl", rows)
    (tmp_path / "a.csv").write_text('t,u,y\n"one, ""two""",x,good\n"lines\nof it",\x00z,bad\n')
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    expected = Examples(['one, "two"', "lines\nof it"], ["good", "bad"], ["x", " z"])
    for name in ("a.jsonl", "a.csv", "a.parquet"):
        assert examples_of(tmp_path / name, text_field="t", pair_field="u", label_field="y") == expected


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.jsonl", '{"text": "x", "label": null}\n', "none of 1 texts has a label"),
        ("a.jsonl", '{"text": "x"}\n', 'no field "label"; the fields there are: text'),
        ("a.jsonl", '{"text": 3, "label": 1}\n', 'the field "text" is int .*, not text'),
        ("a.jsonl", '{"text": "x", "label": NaN}\n', "none of 1 texts has a label"),
        ("a.csv", "text,label\nx,\n", "none of 1 texts has a label"),
        ("a.csv", "text,label\nx\n", "a.csv:2: not as many fields"),
        ("a.csv", "text,label\nx,1,2\n", "a.csv:2: not as many fields"),
    ],
)
def test_records_without_what_is_needed(name: str, content: str, named: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=named):
        examples_of(tmp_path / name)


@pytest.mark.parametrize(
    ("labels", "task"),
    [("3.5 2 1", "regression"), ("3 2 1", "single-label"), ("3.5 x 1", "single-label"), ("3.5  1", "regression")],
)
def test_decimals_of_a_csv_file_are_values(labels: str, task: str, tmp_path: Path, recwarn: Any) -> None:
    lines = [f"some text,{label}\n" for label in labels.split(" ")]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(lines))
    assert learn_scheme(examples_of(tmp_path / "a.csv").labels, "auto").task == task
    assert len(recwarn) == ("" in labels.split(" "))


@hypothesis.given(st.lists(st.text() | st.from_regex(r"-{0,3}\d{1,4}", fullmatch=True), min_size=2, unique=True))
@hypothesis.example(["--5", "5"])
@hypothesis.example(["9" * 5000, "٣"])
def test_any_different_texts_are_names_of_classes(names: list[str]) -> None:
    scheme = learn_scheme(names, "single-label")
    assert sorted(scheme.names) == sorted(names)
    assert scheme.encode(names, where="here") == [scheme.names.index(name) for name in names]


OF_TWO_KINDS = [f"the {kind} text {number}" for kind in ("good", "bad") for number in range(8)]
LABELS: dict[str, tuple[Any, type]] = {
    "whole numbers": ([0] * 8 + [1] * 8, int),
    "truths": ([False] * 8 + [True] * 8, bool),
}


@pytest.mark.parametrize(("labels", "kind"), LABELS.values(), ids=LABELS)
def test_predictions_have_the_type_of_the_labels(
    labels: list[Any], kind: type, longform_folder: Path, tmp_path: Path
) -> None:
    table = pandas.DataFrame({"text": OF_TWO_KINDS, "label": labels})
    longform.finetune(longform_folder, table, max_steps=1, output=tmp_path / "out", progress=False)
    classifier = longform.Classifier.from_pretrained(tmp_path / "out")
    assert classifier.classes_ == sorted(set(labels))
    for each in (
        *classifier.predict(OF_TWO_KINDS),
        *(longform.predict(tmp_path / "out", OF_TWO_KINDS, progress=False).results or ()),
    ):
        assert type(each["label"]) is kind
        assert each["scores"][each["label"]] == each["score"]
    assert type(classifier(OF_TWO_KINDS)[0]["label"]) is kind
    write_lines(tmp_path / "a.jsonl", OF_TWO_KINDS)
    for name in ("a.parquet", "b.jsonl"):  # files have names
        longform.predict(tmp_path / "out", tmp_path / "a.jsonl", tmp_path / name, progress=False)
    rows = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert rows == read_lines(tmp_path / "b.jsonl")
    assert {row["label"] for row in rows} <= set(map(str, labels))
    config = json.loads((tmp_path / "out/config.json").read_text())
    config |= {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}
    (tmp_path / "out/config.json").write_text(json.dumps(config))
    assert longform.Classifier.from_pretrained(tmp_path / "out").classes_ == ["no", "yes"]  # renamed, they are names


def test_settings_by_name(longform_folder: Path) -> None:
    data = (OF_TWO_KINDS, [0, 1] * 8)
    options: dict[str, Any] = {"num_train_epochs": 1, "per_device_train_batch_size": 4}
    settings = longform.FinetuningSettings(num_train_epochs=3)
    result = longform.finetune(longform_folder, data, settings, **options, progress=False)
    assert result.steps == 4  # 14 texts


MISSPELT: dict[str, Any] = {
    "finetune": lambda: longform.finetune("a folder", (OF_TWO_KINDS, OF_TWO_KINDS), epoch=1),
    "distill": lambda: longform.distill("a folder", "another", OF_TWO_KINDS, max_step=1),
    "align": lambda: longform.align("a folder", OF_TWO_KINDS, max_stepz=1),
    "pretrain": lambda: pretrain(OF_TWO_KINDS, max_step=1),
    "embed": lambda: longform.embed("a folder", OF_TWO_KINDS, batch_token=1),
    "predict": lambda: longform.predict("a folder", OF_TWO_KINDS, batch_token=1),
    "FinetuningSettings": lambda: longform.FinetuningSettings(epoch=1),  # ty: ignore[unknown-argument]
    "PretrainingSettings": lambda: PretrainingSettings(max_step=1),  # ty: ignore[unknown-argument]
}


@pytest.mark.parametrize("call", MISSPELT.values(), ids=MISSPELT)
def test_a_misspelled_setting_is_refused_at_once(call: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'there is no setting "\w+" in \w+Settings; did you mean "\w+"\?'):
        call()
    with pytest.raises(ConfigurationError, match=r'no setting "zzz" .*; there are tokens_.* and the fields'):
        longform.finetune("a folder", (OF_TWO_KINDS, OF_TWO_KINDS), zzz=1)
