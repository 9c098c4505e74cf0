"""Labelled texts and texts to heal on, as tables, columns and files; and the reports that the commands print."""

import random
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from transformers import BertModel

import longform
from longform.errors import ConfigurationError, DataError
from longform_text.data.given import InMemory
from longform_text.data.text import Document, clean_text, read_documents
from longform_text.data.token_store import CorpusFiles, CorpusTexts, corpus_of
from longform_text.training.alignment.settings import AlignmentSource
from longform_text.training.alignment.sources import open_source
from longform_text.training.labels import Examples, examples_of

ROWS = [{"body": f"the {kind} text {number}", "kind": kind} for kind in ("good", "bad") for number in range(8)]
TABLE = pandas.DataFrame(ROWS)
FIELDS = {"text_field": "body", "label_field": "kind"}
EXPECTED = Examples([row["body"] for row in ROWS], [row["kind"] for row in ROWS])


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        TABLE,
        TABLE[TABLE["kind"] != "other"],
        datasets.Dataset.from_list(ROWS),
        polars.DataFrame(ROWS),
        pyarrow.Table.from_pylist(ROWS),
        (TABLE["body"], TABLE["kind"]),
        (polars.DataFrame(ROWS)["body"], pyarrow.chunked_array([TABLE["kind"]])),
        (EXPECTED.texts, iter(EXPECTED.labels)),
        Examples(TABLE["body"], TABLE["kind"]),
    ],
    ids=[
        "rows",
        "DataFrame",
        "part of a DataFrame",
        "Dataset",
        "polars",
        "pyarrow",
        "columns",
        "other columns",
        "lists",
        "Examples",
    ],
)
def test_labelled_texts(given: Any) -> None:
    assert examples_of(given, **FIELDS) == EXPECTED


def test_labelled_pairs_and_files(tmp_path: Path) -> None:
    expected = Examples(["a", "b"], [0.5, 1.5], ["c", "d"])
    table = pandas.DataFrame({"text": ["a", "b"], "label": [0.5, 1.5], "more": ["c", "d"]})
    table.to_csv(tmp_path / "a.csv", index=False)
    datasets.Dataset.from_pandas(table).save_to_disk(tmp_path / "saved")
    for given in (table, tuple(expected), tmp_path / "a.csv", str(tmp_path / "saved")):
        assert examples_of(given, pair_field="more") == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TABLE, r'texts:0: no field "text"; the fields there are: body, kind'),
        (([1],), "a tuple of 1: labelled texts are"),
        (("a.csv", "b.csv"), "texts is str"),
        (["a text"], "text number 0: a row with fields is needed, this is str"),
        ([{"text": "a", "label": None}], "none of 1 texts has a label"),
        (pandas.DataFrame({"text": ["a"], "label": pandas.array([None], dtype="string")}), "none of 1 texts has"),
        ((["a"], ["x", "y"]), "columns of one length, of text, label, pair; their lengths here: 1, 2"),
        ((["a", None], [1, 2]), 'texts:1: the field "text" is NoneType .*, not text'),
        ((["a", "b"], [1, 2], ["c", 3.5]), 'texts:1: the field "pair" is float .*, not text'),
        ([Path("a.csv"), Path("b.csv")], r"2 files of labelled texts were given \(a.csv, ...\): give one"),
    ],
)
def test_what_is_no_labelled_text(given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        examples_of(given)


@pytest.mark.parametrize("text", ["lone \ud83d", "nul \x00 x"])
def test_what_no_tokenizer_takes_is_replaced_on_every_way(text: str, student_folder: Path) -> None:
    rows = [{"text": text, "label": name, "title": text} for name in "ab" * 4]
    clean = clean_text(text)[0]
    frame = pandas.DataFrame(rows, dtype=object)
    for given in (rows, frame, (frame["text"], frame["label"]), ([text], ["a"], [text])):
        found = examples_of(given)
        assert {*found.texts, *(found.pairs or ())} == {clean}
    for corpus in ([text], pandas.Series([text], dtype=object), np.array([text]), [Document("1", text, {})]):
        assert list(CorpusTexts(corpus_of(corpus))) == [clean]
    made = open_source(AlignmentSource(texts=[row | {"text": "one two. " * 9} for row in rows], make=["title"],
                                       title_field="title"), characters=None, heldout=0, seed=0)  # fmt: skip
    assert made.example(0, random.Random(0), most=None).queries == [clean.strip()]
    encoder = longform.Encoder.from_pretrained(student_folder, pooling="mean", prompt=text)
    assert encoder.encode([text, Document("1", text, {})]).shape[0] == 2
    assert len(list(read_documents(InMemory([Document("1", text, {}, text)])))) == 1


def test_a_corpus_is_a_list_a_column_or_files(tmp_path: Path) -> None:
    texts = list(EXPECTED.texts)
    others = (polars.DataFrame(ROWS), polars.DataFrame(ROWS)["body"], pyarrow.Table.from_pylist(ROWS))
    for given in (texts, ROWS, TABLE, TABLE["body"], np.array(texts), datasets.Dataset.from_list(ROWS), *others):
        corpus: Any = corpus_of(given, "body")
        assert (len(corpus), corpus[3], list(corpus)) == (16, texts[3], texts)
    stream = corpus_of(datasets.Dataset.from_list(ROWS).to_iterable_dataset(), "body")
    assert list(CorpusTexts(stream)) == list(CorpusTexts(stream)) == texts
    (tmp_path / "a.txt").write_text("near")
    assert corpus_of(tmp_path) == corpus_of([tmp_path]) == CorpusFiles((str(tmp_path),))
    (tmp_path / "b.pdf").write_bytes(b"\xff")
    with pytest.warns(UserWarning, match=r"1 files of no kind that is read are passed over: .*b\.pdf"):
        corpus_of(tmp_path)
    with pytest.raises(ConfigurationError, match='"-" cannot be read again'):
        corpus_of("-")
    for wrong, message in (
        (TABLE, "its columns are: body, kind"),
        (["a", 3], "text number 1: int is no text"),
        (polars.DataFrame(ROWS).lazy(), r"texts is LazyFrame: collect\(\) it, or give"),
    ):
        with pytest.raises(DataError, match=message):
            corpus_of(wrong)


def test_finetune_on_a_table_and_its_report(longform_folder: Path, tmp_path: Path) -> None:
    settings = longform.FinetuningSettings(max_steps=2, validation_fraction=0.25)
    result = longform.finetune(
        longform_folder, TABLE, settings, **FIELDS, output=tmp_path / "out", progress=False
    )  # fmt: skip
    lines = result.report.splitlines()
    assert lines[0].startswith("validation  loss ")
    assert lines[0].endswith("of 2)")
    assert lines[1:] == [
        "texts cut   0 of the training part",
        f"saved       {tmp_path / 'out'} (metrics.json, records.jsonl, learning_curve.png)",
    ]
    found = longform.Classifier.from_pretrained(tmp_path / "out").predict(TABLE)  # the config remembers the fields
    assert {each["label"] for each in found} <= {"good", "bad"}


def test_distil_on_a_column_and_its_report(student_folder: Path, teacher: BertModel, texts: list[str]) -> None:
    settings = longform.DistillationSettings(length=24, min_length=16, max_steps=1, heldout_documents=4)
    one, other = (
        longform.distill(student_folder, teacher, given, settings, text_field="body", progress=False)
        for given in (texts, pandas.DataFrame({"body": texts}))
    )
    assert one.after == other.after
    assert [line.split()[0] for line in one.report.splitlines()][:3] == ["before", "after", "trained"]
    assert f"cosine to the teacher {one.after.cosine:.4f}" in one.report
