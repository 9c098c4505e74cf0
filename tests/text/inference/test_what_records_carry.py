"""Records of embed and predict: ids and fields of their documents, on standard output too, finished ones made once."""

import gzip
import io
import json
import math
import sys
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import read_lines, write_lines

from longform.errors import ConfigurationError, DataError
from longform_text.data.text import Document, count_documents
from longform_text.inference import run as inference
from longform_text.inference.encoders import Encoder
from longform_text.inference.kept_fields import kept_fields
from longform_text.inference.resumable import write_parquet
from longform_text.inference.run import InferenceSettings, embed, predict

SETTINGS = InferenceSettings(progress=False)
ROWS: list[dict[str, Any]] = [
    {"text": "near far", "id": 17, "label": "good", "n": 1, "tags": ["a", "b"], "any": 1},
    {"text": "the long text", "id": "b", "label": "bad", "n": 2.5, "tags": [], "any": {"x": None}},
    {"text": "it is", "label": "good", "n": math.nan, "tags": None, "any": "\ud800"},
    {"text": "bad", "id": "", "label": "bad", "n": 3, "tags": ["c"], "any": [1]},
]
KEEP = replace(SETTINGS, keep=("gold=label", "n", "tags", "any", "text"))


def test_a_record_has_its_own_id_else_its_place(longform_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", ROWS)
    embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS)
    assert [record["id"] for record in read_lines(tmp_path / "out.jsonl")] == ["17", "b", f"{source}:3", f"{source}:4"]
    embed(longform_folder, source, tmp_path / "other.jsonl", replace(SETTINGS, id_field="label"))
    assert [record["id"] for record in read_lines(tmp_path / "other.jsonl")] == ["good", "bad", "good", "bad"]


def test_fields_are_carried_along(classifier_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", ROWS)
    predict(classifier_folder, source, tmp_path / "out.jsonl", KEEP)
    records = read_lines(tmp_path / "out.jsonl")
    assert list(records[0])[:7] == ["id", "gold", "n", "tags", "any", "text", "label"]
    assert [record["gold"] for record in records] == ["good", "bad", "good", "bad"]
    assert [record["n"] for record in records] == [1, 2.5, None, 3]
    assert [record["any"] for record in records] == [1, {"x": None}, "\N{REPLACEMENT CHARACTER}", [1]]
    predict(classifier_folder, source, tmp_path / "out.parquet", KEEP)
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    kinds = {name: str(table.schema.field(name).type) for name in ("gold", "n", "tags", "any")}
    assert kinds == {"gold": "string", "n": "double", "tags": "list<element: string>", "any": "string"}
    found = [{**row, "any": json.loads(row["any"])} for row in table.to_pylist()]
    assert found == records


def test_fields_of_parquet_that_json_has_no_word_for(longform_folder: Path, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"text": ["near", "far"], "day": [date(2026, 1, 2), None], "value": [math.inf, 1.5]})
    frame.to_parquet(tmp_path / "a.parquet")
    embed(longform_folder, tmp_path / "a.parquet", tmp_path / "out.jsonl", replace(SETTINGS, keep=["day", "value"]))
    kept = [(record["day"], record["value"]) for record in read_lines(tmp_path / "out.jsonl")]
    assert kept == [("2026-01-02", "Infinity"), (None, 1.5)]


NUMBERS = np.arange(2000)
KEPT: dict[str, tuple[Any, Any]] = {
    "missing": ([None, math.nan, pandas.NA, pandas.NaT, np.datetime64("NaT"), np.float32("nan")], [None] * 6),
    "arrays": (NUMBERS, NUMBERS.tolist()),
    "matrices": (np.eye(2, dtype=np.float32), [[1, 0], [0, 1]]),
    "dates": (np.array(["2024-01-02T03:04:05.000000006", "NaT"], "M8[ns]"), ["2024-01-02T03:04:05.000000006", None]),
    "tensors": (torch.tensor([1, 2]), [1, 2]),
    "nullable": (pandas.array([1, None], dtype="Int64"), [1, None]),
    "columns": (pandas.Series(["a", None], dtype="category"), ["a", None]),
    "Timestamp": (pandas.Timestamp("2024-01-02 03:04:05.000000006", tz="UTC"), "2024-01-02 03:04:05.000000006+00:00"),
    "Timedelta": (pandas.Timedelta(nanoseconds=1), "0 days 00:00:00.000000001"),
    "Period": (pandas.Period("2024-01", "M"), "2024-01"),
    "scalars": ([np.int64(2**60 + 1), np.bool_(True), np.str_("x"), np.float64(0.1)], [2**60 + 1, True, "x", 0.1]),
    "Decimal": (Decimal("0.10"), "0.10"),
    "UUID": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "bytes": (b"\x00\xff", "AP8="),
    "set": ({"b", "a"}, ["a", "b"]),
    "names": ({1: "a", "x": (1, 2)}, {"1": "a", "x": [1, 2]}),
    "NUL": ("\x00", "\x00"),
    "large": (2**200, 2**200),
}


@pytest.mark.parametrize(("value", "expected"), KEPT.values(), ids=KEPT)
def test_values_of_any_library_are_kept_whole(value: Any, expected: Any) -> None:
    assert kept_fields(Document("1", "near", {"x": value}), {"y": "x"}, text_field="text") == {"y": expected}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        ({(1, 2): "a"}, "keys must be str"),
        (10**5000, "4300 digits"),
        (pandas.DataFrame({"a": [1]}), "DataFrame"),
    ],
    ids=["object", "tuple", "digits", "table"],
)
def test_what_cannot_be_kept_is_refused_at_its_record(
    value: Any, named: str, longform_folder: Path, tmp_path: Path
) -> None:
    rows = [{"text": "near", "x": 1}, {"text": "far", "x": value}, {"text": "bad"}]
    message = rf'document texts:1: the field "x" \({type(value).__name__}\) cannot be kept, .*{named}'
    for output in (None, tmp_path / "out.jsonl", tmp_path / "out.parquet"):
        with pytest.raises(DataError, match=message):
            embed(longform_folder, rows, output, replace(SETTINGS, keep=["x"]))


MIXED: dict[str, list[Any]] = {
    "number, text": [1, "a", None],
    "bool, number": [True, 1, 0.5],
    "large": [2**63, 1, 2**200],
    "lists": [["k", 1], [], None],
    "lists of bools": [[True], [1], []],
    "bools and numbers in lists": [[0.0, False], [True, 2.5], []],
    "bools and numbers in rows": [{"a": [0.5]}, {"a": [1.5, False]}, None],
    "rows of other names": [{"a": 1}, {"b": {}}, {}],
    "no names": [{}, None, {}],
    "whole in float": [2**60 + 1, 0.5, None],
    "texts and numbers in rows": [{"a": 1}, {"a": "x"}, {"a": [1]}],
    "large in lists": [[2**64], [1], []],
    "deep": [json.loads("[" * 40 + "]" * 40), None, []],  # a schema that no reader of parquet takes
}
SURE: dict[str, tuple[list[Any], str]] = {
    "numbers": ([1, 0.5, None], "double"),
    "rows": ([{"a": 1, "b": ["x"]}, None, {"a": 2, "b": []}], "struct<a: int64, b: list<element: string>>"),
    "bools": ([True, None, False], "bool"),
    "wide": (
        [{f"{name}": [name] for name in range(40)}] * 3,
        f"struct<{', '.join(f'{n}: list<element: int64>' for n in range(40))}>",
    ),
    "nothing": ([None, None, None], "null"),
}


@pytest.mark.parametrize("group", [1024, 1])
def test_kept_values_in_parquet_have_a_type_that_holds_them_or_are_json(
    group: int, longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longform_text.inference.resumable.ROWS_AT_A_TIME", group)
    columns = MIXED | {name: values for name, (values, _) in SURE.items()}
    rows = [{"text": "near", **{name: values[row] for name, values in columns.items()}} for row in range(3)]
    embed(
        longform_folder,
        write_lines(tmp_path / "a.jsonl", rows),
        tmp_path / "out.parquet",
        replace(SETTINGS, keep=[*columns]),
    )
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    for name, values in MIXED.items():
        assert list(map(json.loads, table[name].to_pylist())) == values, name
    for name, (values, kind) in SURE.items():
        assert (table[name].to_pylist(), str(table[name].type)) == (values, kind)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
)
NAMES = st.sampled_from(["a", "b", "", "a.b", "\0"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_any_json_is_in_parquet_as_it_is_or_as_json(values: list[Any]) -> None:
    file = io.BytesIO()
    write_parquet(lambda: iter([{"id": "a", "kept": value} for value in values]), file)
    found = pyarrow.parquet.read_table(file)["kept"].to_pylist()
    assert is_same_json(found, values) or is_same_json(list(map(json.loads, found)), values)


def is_same_json(found: Any, given: Any) -> bool:
    """Whether both are the same; of numbers false is not 0, and 1.0 is 1."""
    if isinstance(given, list):
        return isinstance(found, list) and len(found) == len(given) and all(map(is_same_json, found, given))
    if isinstance(given, dict):
        return isinstance(found, dict) and is_same_json([*map(list, found.items())], [*map(list, given.items())])
    return isinstance(found, bool) == isinstance(given, bool) and found == given


@pytest.mark.parametrize(
    ("keep", "named"),
    [
        (["label"], 'keep: "label" is a field of our records; give it another name: label-given=label'),
        (["id=n"], '"id" is a field of our records; give it another name: id-given=n'),
        (["n", "n"], 'keep: "n" is kept twice'),
    ],
)
def test_names_that_records_have_already(keep: list[str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        InferenceSettings(keep=keep)


def test_a_field_that_is_not_there(longform_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", ROWS)
    with pytest.raises(DataError, match=r'a\.jsonl:1: no field "title"; the fields there are: text, id, label, n,'):
        embed(longform_folder, source, tmp_path / "out.jsonl", replace(SETTINGS, keep=["title"]))
    (tmp_path / "a.txt").write_text("near")
    with pytest.raises(DataError, match=r'a\.txt: no field "title" to keep; plain text has no fields'):
        embed(longform_folder, tmp_path / "a.txt", tmp_path / "out.jsonl", replace(SETTINGS, keep=["title"]))


def test_standard_output_has_the_records_and_nothing_else(
    longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "a.jsonl", ROWS)
    piped = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", piped)
    summary = embed(longform_folder, source, "-", KEEP)
    found = [json.loads(line) for line in piped.buffer.getvalue().splitlines()]  # ty: ignore[unresolved-attribute]
    whole = embed(longform_folder, source, tmp_path / "out.jsonl", KEEP)
    assert found == read_lines(tmp_path / "out.jsonl")
    same: Any = {"output": "", "seconds": 0.0, "tokens_per_second": 0.0}
    assert replace(summary, **same) == replace(whole, **same)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "out.jsonl"]


def test_a_finished_output_is_made_again_only_when_asked(longform_folder: Path, tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "a.jsonl", ROWS), tmp_path / "out.jsonl"
    embed(longform_folder, source, output, SETTINGS)
    before = output.read_bytes()
    for model in (longform_folder, "no such model"):  # which is not loaded for it
        with pytest.raises(ConfigurationError, match=r"is finished already: give restart=True \(--restart\)"):
            embed(model, source, output, SETTINGS)
    write_lines(source, [*ROWS[:2], {"body": ""}])
    with pytest.raises(DataError, match=r"a\.jsonl:3"):
        embed(longform_folder, source, output, replace(SETTINGS, restart=True, batch_tokens=1))
    assert output.read_bytes() == before
    write_lines(source, ROWS[:2])
    embed(longform_folder, source, output, replace(SETTINGS, restart=True))
    assert len(read_lines(output)) == 2


def test_a_kept_field_that_changed_is_another_document(
    longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = write_lines(tmp_path / "a.jsonl", ROWS), tmp_path / "out.jsonl"
    monkeypatch.setattr(inference.ResumableOutput, "finish", lambda _: None)  # as if it were killed before
    embed(longform_folder, source, output, KEEP)
    write_lines(source, [ROWS[0], ROWS[1] | {"n": 5}, *ROWS[2:]])
    with pytest.raises(DataError, match=r"number 2 is another one \(b\) in the sources"):
        embed(longform_folder, source, output, KEEP)


def test_documents_are_counted_before_they_are_read(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "b.txt").write_text("one\ntwo")
    (tmp_path / "c.csv").write_text('text\n"two\nlines"\nthree\n')
    (tmp_path / "d.json").write_text('["x", "y", "z"]')
    pandas.DataFrame({"text": ["x"] * 5}).to_parquet(tmp_path / "e.parquet")
    with gzip.open(tmp_path / "f.jsonl.gz", "wb") as file:
        file.write(b'{"text": "x"}\n{"text": "y"}')
    assert count_documents(tmp_path) == 4 + 1 + 2 + 3 + 5 + 2
    assert count_documents([tmp_path / "a.jsonl", str(tmp_path / "c.csv")]) == 6
    assert count_documents([tmp_path / "a.jsonl", "-"]) is None
    assert count_documents("hf:imdb:train") is None
    (tmp_path / "c.csv").write_text("text\na,b\n")
    assert count_documents(tmp_path) is None


def test_progress_has_a_total_and_counts_what_is_computed(
    longform_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "a.jsonl", ROWS)
    embed(longform_folder, source, tmp_path / "log.jsonl", InferenceSettings())
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    embed(longform_folder, source, tmp_path / "out.jsonl", InferenceSettings())
    assert "4/4" in capsys.readouterr().err
    texts, seen, given = ["near", "the " * 20, "far", "the " * 30], [], []
    encoder = Encoder.from_pretrained(longform_folder)
    for outcome in encoder.outcomes(texts, max_tokens_per_batch=32, computed=seen.append):
        given.append((outcome.index, sum(seen)))
    assert [index for index, _ in given] == [0, 1, 2, 3]
    assert (given[0][1], sum(seen)) == (4, 4)  # the longest is computed first
    averaged: list[int] = []
    list(encoder.outcomes(texts, strategy="chunk-average", computed=averaged.append))
    assert averaged == [1, 1, 1, 1]
