import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import speed_pictures, speed_tables, table_definitions, tables
from benchmarks.memory import LargestTensor, failures, peak_growth
from benchmarks.records import Record, append_record, read_records
from benchmarks.table_kinds import Column, ComputedTable, TableDefinition

HARDWARE = {"cpu": "a CPU", "cpu_features": ["avx2", "avx512_bf16"], "cores": 2, "threads": 2, "gpu": None}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0"}


def record(date: str, settings: dict[str, Any], **metrics: Any) -> Record:
    return Record(
        name="race", settings=settings, metrics=metrics, hardware=HARDWARE, versions=VERSIONS, commit="abc", date=date
    )


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (
        Column(header="runner", value="settings.runner"),
        Column(header="score", value="metrics.score", form=".2f"),
        Column(header="steps", value="metrics.steps", form=",d"),
    )
    monkeypatch.setitem(
        table_definitions.TABLES,
        "race",
        TableDefinition(columns=columns, where={"settings.kind": "final"}, order=("metrics.score",)),
    )


def test_a_record_survives_the_file(tmp_path: Path) -> None:
    first = Record(name="race", metrics={"score": 0.5, "note": None}, settings={"runner": "ä"}, units={"score": "s"})
    second = dataclasses.replace(first, metrics={"score": 1})
    path = tmp_path / "new" / "race.jsonl"
    append_record(path, first)
    append_record(path, second)
    assert read_records([path]) == [first, second]
    assert first.hardware["cores"] >= 1
    assert set(first.versions) == {"python", "torch", "transformers", "longform"}


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


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "race.jsonl"
    path.write_text(record("2026-01-01", {}).to_line() + '\n{"name": "race"}\n')
    with pytest.raises(ValueError, match=r"race\.jsonl, line 2"):
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
        "| --- | --- | --- |",
        "| a | 1.00 | – |",
        "| b\\|c | 2.00 | 1,000 |",
        "",
        "*Measured on a CPU, 2 cores, avx512_bf16. torch 2.13.0, transformers 5.23.0. "
        "abc of 2026-01-02; abc of 2026-01-03.*",
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


@pytest.mark.parametrize("text", ["<!-- table:nonsense -->\n<!-- /table -->", "<!-- table:memory -->\nopen"])
def test_an_unknown_or_open_table_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"no table 'nonsense'|not closed"):
        tables.fill_document(text, [])


def test_check_fails_until_the_tables_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("<!-- table:memory -->\n<!-- /table -->\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RECORDS", tmp_path / "records")
    assert tables.main(["--check"]) == 1
    assert tables.main([]) == 0
    assert tables.main(["--check"]) == 0
    assert "Not measured yet" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("table", table_definitions.TABLES.values())
def test_every_column_names_a_part_of_a_record(table: TableDefinition | ComputedTable) -> None:
    parts = {field.name for field in dataclasses.fields(Record)}
    paths = [*table.row, *table.order, *table.where]
    paths += [column.value for column in table.columns] if isinstance(table, TableDefinition) else []
    assert {path.partition(".")[0] for path in paths} <= parts


def speed_record(competitor: str, length: int, slots: int, **metrics: Any) -> Record:
    where = table_definitions.TABLES["speed"].where
    settings = {path.partition(".")[2]: value for path, value in where.items()}
    given = settings | {"competitor": competitor, "length": length, "slots": slots}
    return dataclasses.replace(record("2026-01-01", given, **metrics), name="speed")


def test_a_speed_table_has_a_row_a_length_and_a_column_a_competitor() -> None:
    records = [
        speed_record("sdpa", 512, 256, against_sdpa=1.0),
        speed_record("ours-linear", 512, 256, against_sdpa=1.5),
        speed_record("ours-linear", 512, 128, against_sdpa=9.0),  # for the paper's table
        speed_record("ours-linear", 128, 64, against_sdpa=1.25),
        speed_record("tatp22", 512, 256, against_sdpa=None, missing="out of memory"),
    ]
    assert tables.render_table("speed", records).splitlines()[:4] == [
        "| tokens | Longform, linear, layerwise | full attention, SDPA |",
        "| --- | --- | --- |",
        "| 128 | 1.25 | – |",
        "| 512 | 1.50 | 1.00 |",
    ]


def test_where_it_pays_is_the_shortest_length_without_a_slower_longer_one() -> None:
    ratios = {128: 1.1, 256: 0.9, 512: 1.2, 2_048: 2.5}
    records = [speed_record("ours-mean", n, min(256, n // 2), against_sdpa=ratio) for n, ratio in ratios.items()]
    records += [speed_record("tatp22", 512, 256, against_sdpa=9.0)]
    assert tables.render_table("crossings", records).splitlines()[2:4] == [
        "| base | inference | Longform, mean | 512 | 128 | 1.10 | 2,048 | 2.5 |", "",
    ]  # fmt: skip


def test_columns_are_the_precisions_that_were_measured() -> None:
    slow = speed_record("ours-mean", 512, 256, seconds=0.25)
    settings = dict(slow.settings)
    fast = dataclasses.replace(slow, settings=settings | {"dtype": "int8"}, metrics={"seconds": 0.125})
    lone = dataclasses.replace(slow, settings=settings | {"length": 128, "slots": 64})
    assert tables.render_table("precision", [slow, fast, lone]).splitlines()[:3] == [
        "| size | tokens | encoder | bfloat16 | int8 |", "| --- | --- | --- | --- | --- |",
        "| base | 512 | Longform, mean | 250.0 | 125.0 |",
    ]  # fmt: skip


def test_time_is_shared_out_where_it_was_profiled() -> None:
    kinds = ("products", "attention", "activation", "normalisation", "elementwise", "copies", "other")
    shares = {f"share_{kind}": 0.9 if kind == "products" else 1 / 60 for kind in kinds}
    records = [speed_record("sdpa", 512, 256, against_floor=1.2, **shares), speed_record("tatp22", 512, 256)]
    assert tables.render_table("where_time_goes", records).splitlines()[2:4] == [
        "| 512 | full attention, SDPA | 90% | 2% | 2% | 2% | 2% | 2% | 2% | 1.20 |", "",
    ]  # fmt: skip


def test_pictures_are_drawn_from_records_and_shown_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_tables, "PICTURES", tmp_path)
    records = [speed_record("sdpa", n, n // 2, seconds=n * 1e-3) for n in (128, 256)]
    assert tables.render_table("speed_pictures", records[:1]) == "*Not measured yet.*\n"
    assert speed_pictures.draw(records[:1], tmp_path) == []
    assert [path.name for path in speed_pictures.draw(records, tmp_path)] == ["speed-time.png"]
    assert tables.render_table("speed_pictures", records).startswith("![Seconds of a pass")
    assert "](docs/pictures/speed-time.png)" in tables.render_table("speed_pictures_in_readme", records)


def test_the_papers_table_3_stands_beside_ours() -> None:
    records = [speed_record("ours-linear", 512, 128, against_unfused=1.6, texts_against_unfused=1.25)]
    assert tables.render_table("paper_table_3", records).splitlines()[2] == (
        "| 512 | 128 | 1 | base, bfloat16 | 1.60 | 1.5 | yes | 1.25 | 1.7 | no |"
    )


def test_the_largest_tensor_counts_storage_made_inside_and_nothing_else() -> None:
    existing = torch.zeros(100)
    with LargestTensor([existing]) as watch:
        existing.view(10, 10).mul_(2)
        existing[:1].add(1).expand(1_000)
        torch.zeros(7, dtype=torch.float64).unsqueeze(0)
    assert watch.elements == 7


def test_peak_growth_sees_memory_that_is_freed_again() -> None:
    size = 64 * 2**20
    assert 0.9 * size < peak_growth(lambda: bytearray(b"x" * 2**20) * 64) < 1.5 * size


def test_memory_that_grows_faster_than_the_length_is_a_failure() -> None:
    def result(mib: float, elements: int) -> dict[str, Any]:
        return {"peak_mib": mib, "largest_tensor": elements, "largest_operation": "mm"}

    assert failures({10: result(1.0, 99), 20: result(2.1, 99)}) == []
    assert len(failures({10: result(1.0, 100), 20: result(4.0, 99)})) == 2
