from dataclasses import replace
from pathlib import Path

import pytest

from longform.errors import CheckpointError, ConfigurationError
from longform_lab.records import Record, append_record, read_records
from longform_lab.speed.cells import Effort
from longform_lab.speed.competitors import chosen_competitors
from longform_lab.speed.grid import LOG, RECORDS, open_grid, run_grid, set_aside
from longform_lab.speed.shapes import Cell

NAMES = ("ours-linear", "sdpa")
EFFORT = Effort(repeats=5, cell_seconds=10.0)


def cells(*lengths: int, size: str = "tiny") -> list[Cell]:
    settings = {"batch": 1, "slots": 16, "dtype": "float32", "mode": "eager", "work": "inference", "device": "cpu"}
    return [Cell(size=size, length=length, threads=1, **settings) for length in lengths]


def measured(folder: Path, *lengths: int, names: tuple[str, ...] = NAMES, effort: Effort = EFFORT) -> list[Record]:
    competitors = chosen_competitors(names)
    return run_grid(cells(*lengths), competitors, effort, output=folder, tell=lambda _: None)


def reasons(records: list[Record]) -> dict[str, object]:
    return {record.settings["competitor"]: record.metrics["missing"] for record in records}


def test_a_row_says_time_ratios_and_memory(tmp_path: Path, fake_processes) -> None:
    ours, twin = measured(tmp_path, 64)
    assert ours.settings == {**cells(64)[0].settings("ours-linear")}
    assert ours.commit == twin.commit == "of the child"
    expected = {
        "missing": None, "seconds": 64e-6, "spread": 0.0, "repeats": 5, "against_sdpa": 2.0,
        "peak_mib": 64 / 1_024, "weights_mib": 1.0, "error": 1e-6, "against_unfused": None,
    }  # fmt: skip
    assert {name: ours.metrics[name] for name in expected} == pytest.approx(expected)
    assert ours.metrics["tokens_per_second"] == pytest.approx(1e6)
    assert twin.metrics["against_ours-linear"] == pytest.approx(0.5)


def test_the_rows_of_a_cell_have_one_date(tmp_path: Path, fake_processes, monkeypatch: pytest.MonkeyPatch) -> None:
    dates = iter(["2026-01-01T00:00:59+00:00", "2026-01-01T00:01:00+00:00"])
    monkeypatch.setattr("longform_lab.speed.cells.now", lambda: next(dates))
    found = [record.date for record in measured(tmp_path, 32, 64)]
    assert found == ["2026-01-01T00:00:59+00:00"] * 2 + ["2026-01-01T00:01:00+00:00"] * 2


def test_what_is_there_is_not_measured_again(tmp_path: Path, fake_processes) -> None:
    measured(tmp_path, 32)
    also = tmp_path / "also.jsonl"
    competitors = chosen_competitors((*NAMES, "ours-mean"))
    records = run_grid(cells(32, 64), competitors, EFFORT, output=tmp_path, also=also, tell=lambda _: None)
    assert len(records) == 6
    # The new row of the old cell is measured beside the references, whose rows stay.
    assert fake_processes.calls[2:4] == [
        ("memory", 32, ("ours-linear", "ours-mean", "sdpa")),
        ("time", 32, ("ours-linear", "ours-mean", "sdpa")),
    ]
    assert [record.settings["length"] for record in read_records([also])] == [32, 64, 64, 64]
    before = (tmp_path / RECORDS).read_bytes()
    fake_processes.calls.clear()
    measured(tmp_path, 32, 64)
    assert fake_processes.calls == []
    assert (tmp_path / RECORDS).read_bytes() == before


def test_rows_are_kept_with_their_commit_but_memory_and_packages_are_tried_again(
    tmp_path: Path, fake_processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longform_lab.speed.competitor.find_spec", lambda name: None)
    fake_processes.dies = {"ours-mean": "memory"}
    names = ("ours-linear", "ours-mean", "tatp22")
    assert [record.metrics["missing"] is None for record in measured(tmp_path, 64, names=names)] == [True, False, False]
    monkeypatch.setattr("longform_lab.speed.competitor.find_spec", lambda name: name)
    monkeypatch.setattr("longform_lab.speed.cells.version", lambda name: "1.0")
    fake_processes.dies = {}
    said: list[str] = []
    records = run_grid(cells(64), chosen_competitors(names), EFFORT, output=tmp_path, tell=said.append)
    assert reasons(records) == dict.fromkeys(names)
    assert len(records) == 3
    assert said[0] == f"1 rows kept from commit {records[0].commit}"
    assert len((tmp_path / RECORDS).read_text().splitlines()) == 5


@pytest.mark.parametrize("end", ["", "stopped"])
def test_with_more_time_it_is_tried_again(end: str, tmp_path: Path, fake_processes) -> None:
    fake_processes.slow = {} if end else {"sdpa": 6.0}
    fake_processes.dies, fake_processes.end = ({"sdpa": "memory"}, "stopped after 10 s") if end else ({}, "")
    assert reasons(measured(tmp_path, 64))["sdpa"]
    fake_processes.calls.clear()
    measured(tmp_path, 64)
    assert not fake_processes.calls  # as little time as before
    fake_processes.dies = {}
    longer = replace(EFFORT, cell_seconds=60.0)
    records = run_grid(cells(64), chosen_competitors(NAMES), longer, output=tmp_path, tell=lambda _: None)
    assert reasons(records)["sdpa"] is None


def test_a_file_for_records_that_cannot_be_written_is_known_before_anything_is_measured(
    tmp_path: Path, fake_processes
) -> None:
    with pytest.raises(IsADirectoryError):
        run_grid(cells(64), chosen_competitors(NAMES), EFFORT, output=tmp_path / "out", also=tmp_path)
    assert fake_processes.calls == []


def test_set_aside_records_are_kept_and_not_used(tmp_path: Path, fake_processes) -> None:
    assert set_aside(tmp_path) is None
    measured(tmp_path, 64)
    before = (tmp_path / RECORDS).read_bytes()
    aside = set_aside(tmp_path)
    assert aside is not None
    assert aside.read_bytes() == before
    fake_processes.calls.clear()
    measured(tmp_path, 64)
    assert len(fake_processes.calls) == 2


@pytest.mark.parametrize("task", ["memory", "time"])
def test_a_process_that_dies_takes_only_one_competitor_with_it(task: str, tmp_path: Path, fake_processes) -> None:
    fake_processes.dies = {"ours-mean": task}
    records = measured(tmp_path, 64, names=("ours-linear", "ours-mean", "sdpa"))
    assert reasons(records) == {
        "ours-linear": None, "ours-mean": "out of memory (the system ended its process)", "sdpa": None,
    }  # fmt: skip


def test_a_long_cell_gets_fewer_rounds_or_none(tmp_path: Path, fake_processes) -> None:
    fake_processes.slow = {"ours-linear": 2.0, "sdpa": 6.0}
    records = measured(tmp_path, 64)
    assert {record.settings["competitor"]: record.metrics.get("repeats") for record in records} == {
        "ours-linear": 3,
        "sdpa": None,
    }
    assert reasons(records)["sdpa"] == "a pass takes about 6 s, too long for --cell-seconds 10"
    assert fake_processes.turns == {EFFORT.cell_seconds}  # also where nothing is known beforehand


def test_cells_that_this_machine_cannot_measure_have_rows_that_say_so(
    tmp_path: Path, fake_processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longform_lab.speed.precision.native_bfloat16", lambda device: False)
    monkeypatch.setattr("longform_text.inference.loading.shutil.which", lambda name: None)
    common = {"size": "tiny", "length": 64, "batch": 1, "slots": 16, "device": "cpu", "threads": 1}
    impossible = [
        Cell(dtype="bfloat16", mode="eager", work="inference", **common),
        Cell(dtype="float32", mode="compiled", work="inference", **common),
    ]
    records = run_grid(impossible, chosen_competitors(["sdpa"]), EFFORT, output=tmp_path, tell=lambda _: None)
    assert [record.metrics["missing"] for record in records] == [
        "this machine does not multiply bfloat16 matrices",
        "torch.compile needs a C++ compiler, and g++ was not found: install it (apt-get install g++), or name "
        "another by the environment variable CXX",
    ]
    assert fake_processes.calls == []


def test_damaged_records_are_an_error_that_names_the_line(tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text('{"name": \n')
    with pytest.raises(CheckpointError, match=r"records\.jsonl, line 1"):
        measured(tmp_path, 64)


def test_a_benchmark_is_known_by_its_file_or_its_records_and_goes_on(tmp_path: Path) -> None:
    open_grid(tmp_path / "new")
    (tmp_path / "new" / LOG).touch()  # killed before its first record
    open_grid(tmp_path / "new")
    append_record(tmp_path / "earlier" / RECORDS, Record(name="speed", metrics={}))
    (tmp_path / "earlier" / "report.html").touch()
    open_grid(tmp_path / "earlier")
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "report.html").touch()
    with pytest.raises(ConfigurationError, match=r"is not empty \(report.html\), and holds no benchmark"):
        open_grid(tmp_path / "papers")
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / RECORDS).write_text('{"event": "run", "step": 0}\n')
    with pytest.raises(CheckpointError, match="not a benchmark record"):
        open_grid(tmp_path / "training")
