"""Texts in memory and folders that ``datasets`` saved, as documents and as records; and what is a name of a file."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest

from longform.errors import DataError
from longform_text.data.given import Files, InMemory, as_rows, elements, source_of
from longform_text.data.records import read_records
from longform_text.data.text import Document, ReadReport, read_documents
from longform_text.evaluation.retrieval_data import read_retrieval

ROWS = [{"body": "one", "more": "two", "key": 7}, {"body": "", "more": "x", "key": 8}]
TABLES = {
    "rows": ROWS,
    "DataFrame": pandas.DataFrame(ROWS),
    "Dataset": datasets.Dataset.from_list(ROWS),
    "polars": polars.DataFrame(ROWS),
    "pyarrow": pyarrow.Table.from_pylist(ROWS),
    "stream": datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
}


def test_what_is_a_name_and_what_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert source_of("a.txt") == ["a.txt"]
    assert source_of(path) == source_of([path]) == source_of((path,)) == [path]
    assert source_of(Files(("-", "a.txt"))) == ["-", "a.txt"]
    for texts in (["a text"], [], iter(["a text"]), [str(path)], ["a text", path]):
        assert source_of(texts) == InMemory(texts)
    path.touch()
    for names in ([str(path)], (str(path), "hf:x:train"), [str(path), path]):
        assert source_of(names) == list(names)
    assert isinstance(source_of([str(path), "a text"]), InMemory)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_rows_are_documents(table: Any) -> None:
    report = ReadReport()
    found = list(read_documents(InMemory(table), text_field="body", pair_field="more", id_field="key", report=report))
    assert found[0] == Document("7", "one", {"more": "two", "key": 7}, "two")
    assert found[1].id == "8"
    assert (report.documents, report.empty) == (2, 1)
    assert [document.id for document in read_documents(InMemory(table), text_field="body")] == ["texts:0", "texts:1"]
    assert [record.values for record in read_records(InMemory(table))] == ROWS


def test_strings_and_pairs_are_documents() -> None:
    report = ReadReport()
    given = ["a\x00b", ("first", "second"), Document("own", "text", {})]
    found = list(read_documents(InMemory(iter(given)), text_field="body", max_characters=4, report=report))
    assert [(document.id, document.text, document.pair, document.unread) for document in found] == [
        ("texts:0", "a b", None, 0),
        ("texts:1", "firs", "seco", 3),
        ("own", "text", None, 0),
    ]
    assert report == ReadReport(documents=3, replaced_characters=1, unread_characters=3)


def test_a_missing_value_of_pandas_is_none() -> None:
    table = pandas.DataFrame({"text": ["a", "b"], "label": pandas.array([1, None], dtype="Int64")})
    assert [record.values["label"] for record in read_records(InMemory(table))] == [1, None]


def test_an_id_is_whole_whatever_its_column_was_made() -> None:
    frame = pandas.DataFrame({"text": ["a", "b", "c"], "id": [7, None, 9]})
    for given in (frame, [{"text": text, "id": np.int64(7)} for text in "a"], frame.astype({"id": "Int64"})):
        found = [document.id for document in read_documents(InMemory(given))]
        assert found == ["7", "texts:1", "9"][: len(found)]
    assert [document.id for document in read_documents(InMemory(frame), id_field="id")] == ["7", "texts:1", "9"]
    queries = [{"query": "x", "relevant": np.array([7.0, 9.0])}, {"query": "y", "relevant": 9}]
    assert read_retrieval(queries, frame.dropna()).relevant == [{0, 1}, {1}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no documents in the list of texts"),
        (["a", 3], r"text number 1 is int \('3'\), not text"),
        ([{"a": "x"}], r'texts:0: no field "text"; the fields there are: a'),
        (pandas.DataFrame({"a": ["x"], "b": [1]}), r'texts:0: no field "text"; the fields there are: a, b'),
        ([{"text": None}], 'texts:0: the field "text" is NoneType'),
        (3, "texts is int"),
        ({"train": []}, "texts is dict with the keys: train"),
    ],
)
def test_what_is_no_document_is_refused(given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_documents(InMemory(given)))


TWICE = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])


@pytest.mark.parametrize("given", [TWICE, pandas.DataFrame([["a", "b"]], columns=["text", "text"])])
def test_a_name_of_two_columns_is_refused(given: Any) -> None:
    for read in (lambda: read_documents(InMemory(given)), lambda: elements(given, "text")):
        with pytest.raises(DataError, match=r'the columns of the (Table|DataFrame): the name "text" stands there more'):
            list(read())


SECONDS = pyarrow.array([1, 2**62], pyarrow.timestamp("s"))
TWO_OF_A_NAME = pyarrow.StructArray.from_arrays([pyarrow.array([1, 2])] * 2, ["a", "a"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            pyarrow.table({"text": ["a", "b"], "x": SECONDS}),
            'rows 0 to 1 of the table: the column "x" holds what cannot',
        ),
        (pyarrow.table({"text": ["a", "b"], "x": TWO_OF_A_NAME}), 'the column "x" holds what cannot be read'),
        (polars.DataFrame({"text": ["a"], "x": polars.Series([2**100], dtype=polars.Int128)}), "no table for pyarrow"),
        (polars.DataFrame({"text": ["a"], "x": polars.Series([{1}], dtype=polars.Object)}), "objects of Python in x"),
    ],
)
def test_values_of_a_table_that_cannot_be_read(given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_documents(InMemory(given)))


def test_columns_in_a_tuple_are_rows() -> None:
    columns = (pandas.Series(["one", ""], index=[5, 6]), ["two", "x"], iter([7, 8]))
    assert as_rows(columns, "body", "more", None, "key") == ROWS
    assert as_rows(ROWS, "body") is ROWS
    with pytest.raises(DataError, match="columns of one length, of text; their lengths here: 2, 2"):
        as_rows(columns[:2], "text")
    with pytest.raises(DataError, match="columns of one length, of text, label; their lengths here: 1, 2"):
        as_rows((["a"], ["b", "c"]), "text", "label")
    with pytest.raises(DataError, match="texts is str"):
        as_rows(("a text", "label"), "text", "label")


def test_a_folder_that_datasets_saved(tmp_path: Path) -> None:
    saved = datasets.Dataset.from_list(ROWS)
    saved.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=saved, test=saved.select([1])).save_to_disk(tmp_path / "splits")
    datasets.DatasetDict(train=saved).save_to_disk(tmp_path / "single")
    for path in (tmp_path / "one", tmp_path / "splits" / "train", tmp_path / "single"):
        found = list(read_documents([path], text_field="body"))
        assert found[0] == Document(f"{path}:0", "one", {"more": "two", "key": 7})
        assert [record.values for record in read_records(str(path))] == ROWS
    with pytest.raises(DataError, match=r'has several splits \(train, test\): name one, as in ".*splits/train"'):
        list(read_documents(tmp_path / "splits"))
    next((tmp_path / "one").glob("*.arrow")).write_bytes(b"broken")
    with pytest.raises(DataError, match="could not be loaded with the datasets library"):
        list(read_documents(tmp_path / "one"))
