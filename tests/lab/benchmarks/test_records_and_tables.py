import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from longform.errors import DataError
from longform_lab.records import Record, append_record, read_records
from longform_lab.tables import table_definitions
from longform_lab.tables import write as tables
from longform_lab.tables.table_kinds import Column, Table, by_columns

HARDWARE = {"cpu": "a CPU", "cpu_features": ["avx2", "avx512_bf16"], "cores": 2, "threads": 2, "gpu": None}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0"}


def record(date: str, settings: dict[str, Any], **metrics: Any) -> Record:
    return Record(
        name="race", settings=settings, metrics=metrics, hardware=HARDWARE, versions=VERSIONS, commit="abc", date=date
    )


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (
        Column("runner", "settings.runner"),
        Column("score", "metrics.score", ".2f"),
        Column("steps", "metrics.steps", ",d"),
    )
    monkeypatch.setitem(
        table_definitions.TABLES,
        "race",
        Table(
            make=partial(by_columns, columns=columns),
            records="race",
            where={"settings.kind": "final"},
            order=("metrics.score",),
        ),
    )


def test_a_record_survives_the_file(tmp_path: Path) -> None:
    first = Record(name="race", metrics={"score": 0.5, "note": None}, settings={"runner": "ä"}, units={"score": "s"})
    second = dataclasses.replace(first, metrics={"score": 1})
    path = tmp_path / "new" / "race.jsonl"
    append_record(path, first)
    append_record(path, second)
    assert read_records([path]) == [first, second]
    assert first.hardware["cores"] >= 1
    assert set(first.versions) == {"python", "torch", "transformers", "longform", "kernels"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metrics": {"score": float("nan")}}, "finite"),
        ({"metrics": {"score": float("inf")}}, "finite"),
        ({"metrics": {"score": 1.0}, "units": {"scores": "s"}}, "scores"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Record(name="race", **fields)


@pytest.mark.parametrize("line", [b'{"name": "race"}', b"\x80", b"[]", b'{"name": "race", "metrics": 3}', b"[" * 9999])
def test_a_broken_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "race.jsonl"
    path.write_bytes(record("2026-01-01", {}).to_line().encode() + b"\n" + line + b"\n")
    with pytest.raises(DataError, match=r"race\.jsonl, line 2"):
        read_records([path])


@pytest.mark.usefixtures("race")
def test_a_table_shows_the_latest_of_each_kind_in_order_and_a_dash_for_what_is_missing() -> None:
    records = [
        record("2026-01-03", {"runner": "b|c", "kind": "final"}, score=2.0, steps=1_000),
        record("2026-01-02", {"runner": "a", "kind": "final"}, score=1.0),
        record("2026-01-01", {"runner": "b|c", "kind": "final"}, score=9.0, steps=9),
        record("2026-01-04", {"runner": "a", "kind": "practice"}, score=9.0),
    ]
    assert tables.render_table("race", records).splitlines() == [
        "| runner | score | steps |",
        "|---|---|---|",
        "| a | 1.00 | – |",
        "| b\\|c | 2.00 | 1,000 |",
        "",
        "*Measured on a CPU (2 cores, avx512_bf16), 2026-01-02 to 2026-01-03.*",
    ]


@pytest.mark.usefixtures("race")
def test_a_document_is_filled_and_filling_it_again_changes_nothing() -> None:
    records = [record("2026-01-03", {"runner": "a", "kind": "final"}, score=2.0)]
    text = "before\n<!-- table:race -->\nold\n<!-- /table -->\nafter\n<!-- table:race -->\n<!-- /table -->\n"
    filled = tables.fill_document(text, records)
    assert filled.count("| a | 2.00 | – |") == 2
    assert "old" not in filled
    assert filled.startswith("before\n")
    assert tables.fill_document(filled, records) == filled


@pytest.mark.usefixtures("race")
def test_the_line_under_a_table_has_hardware_and_dates_in_every_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tmp_path / "records" / "race.jsonl"
    for date, runner in (("2026-01-03", "a"), ("2026-01-05", "b"), ("2026-01-04", "c")):
        append_record(records, record(date, {"runner": runner, "kind": "final"}, score=1.0))
    (tmp_path / "docs/lab").mkdir(parents=True)
    documents = [tmp_path / "README.md", tmp_path / "docs/page.md", tmp_path / "docs/lab/page.md"]
    for document in documents:
        document.write_text("<!-- table:race -->\n<!-- /table -->\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RECORDS", records.parent)
    tables.main([])
    line = "*Measured on a CPU (2 cores, avx512_bf16), 2026-01-03 to 2026-01-05.*"
    assert [line in document.read_text() for document in documents] == [True] * 3


@pytest.mark.parametrize("text", ["<!-- table:nonsense -->\n<!-- /table -->", "<!-- table:pure -->\nopen"])
def test_an_unknown_or_open_table_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"no table 'nonsense'|not closed"):
        tables.fill_document(text, [])


def test_check_fails_until_the_tables_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("<!-- table:pure -->\n<!-- /table -->\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RECORDS", tmp_path / "records")
    assert tables.main(["--check"]) == 1
    assert tables.main([]) == 0
    assert tables.main(["--check"]) == 0
    assert "Not measured yet" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("table", table_definitions.TABLES.values())
def test_every_column_names_a_part_of_a_record(table: Table) -> None:
    parts = {field.name for field in dataclasses.fields(Record)}
    paths = [*table.row, *table.order, *table.where, *table.having, *table.having_any]
    columns = getattr(table.make, "keywords", {}).get("columns", ())
    paths += [column.value for column in columns if isinstance(column.value, str)]
    assert {path.partition(".")[0] for path in paths} <= parts
