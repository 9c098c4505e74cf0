"""Tables 1 and 3 from made-up rows of the benchmark, and one real pass of an architecture that it does not have."""

import json
import subprocess

import pytest

from longform.errors import ConfigurationError, MissingDependencyError
from longform.runs.facts import hardware, versions
from longform_lab.paper import growth, table1, table3
from longform_lab.paper.growth import measured, measured_apart, reported
from longform_lab.paper.report import Claim
from longform_lab.records import Record
from longform_lab.speed import children
from longform_lab.speed.shapes import Cell

MACHINE = {"hardware": hardware(), "versions": versions(), "commit": "x"}
CELL = Cell(
    size="tiny", length=32, batch=1, slots=8, dtype="float32", mode="eager", work="inference", device="cpu", threads=1
)


def made_up(cells, names, scale, output):
    """Unfused attention takes n² / 1000 seconds and does not fit above 1,024 tokens; ours n k / 10,000."""
    rows = []
    for cell in cells:
        n, k = cell.length, cell.shape.slots
        for name in names:
            seconds = n * k / 1e4 if name.startswith("ours") else n * n / 1e3
            metrics = {
                "seconds": seconds, "peak_mib": float(n), "missing": None, "texts_in_16_gib": 1e6 / n,
                "against_unfused": n * n / 1e3 / seconds, "against_sdpa": 2.0,
            }  # fmt: skip
            if n > 1024 and name == "unfused":
                metrics = {"missing": "out of memory"}
            settings = cell.settings(name)
            rows.append(Record(name="speed", settings=settings, metrics=metrics, **MACHINE))
    return rows


def test_exponents():
    assert table1.exponent({n: 3.0 * n**1.5 for n in (64, 128, 512)}) == pytest.approx(1.5)
    assert table1.exponent({1: 5.0, 100: 10.0, 200: 40.0, 400: 160.0}) == pytest.approx(2.0)  # the three longest
    assert table1.exponent({100: 1.0}) is None


def test_table_1(tmp_path, monkeypatch):
    monkeypatch.setattr(table1, "measured_cells", made_up)
    apart = iter(
        [{"seconds": [1.0, 3.0, 2.0], "growth": 2**20}, *({"missing": "stopped after 9 s"} for _ in range(20))]
    )
    monkeypatch.setattr(table1, "measured_apart", lambda *_: next(apart))
    report = table1.reproduce_table1("small", tmp_path, lengths=[512, 1024, 2048], slots=[64], progress=False)
    rows = {row[0]: row for row in report.table.rows}
    assert report.claims == [
        Claim("Transformer: O(n²)", "time ~ n^2.00", True), Claim("Linformer: O(n)", "time ~ n^1.00", True)
    ]  # fmt: skip
    assert rows["BERT, unfused attention"][3:6] == ["2.00", "1.00", "1,024"]
    assert rows["Longform, linear, layerwise"][1:6] == ["O(n)", "O(1)", "1.00", "1.00", "2,048"]
    assert rows["recurrent (LSTM, both directions)"][3:] == ["–", "–", "512", "2,000", "1"]
    page = (tmp_path / "report.html").read_text()
    assert "n = 2,048: out of memory" in page
    assert "stopped after 9 s" in page
    assert "data:image/png;base64," in page
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == len(report.table.rows)
    with pytest.raises(ConfigurationError, match="two lengths"):
        table1.reproduce_table1("small", tmp_path, lengths=[512], progress=False)
    for other in ({"dtype": "float32" if "bfloat16" in page else "bfloat16"}, {"slots": [32]}):
        with pytest.raises(ConfigurationError, match="was begun with other settings or data"):
            table1.reproduce_table1(
                "small", tmp_path, lengths=[512, 1024, 2048], progress=False, **{"slots": [64], **other}
            )


def test_table_3(tmp_path, monkeypatch):
    monkeypatch.setattr(table3, "measured_cells", made_up)
    report = table3.reproduce_table3("small", tmp_path, lengths=[512, 2048], slots=[128, 512])
    time, tables = report.table, dict(report.others)
    assert time.heads == ["n", "k = 128", "k = 512"]
    assert time.rows[0] == ["512", "40.0x (1.5x)", "k above n/2"]  # not the k below, which nobody asked for
    memory = tables["Largest batch, against unfused attention, the paper's baseline"]
    assert memory.rows[0][1] == "1.00x (1.7x)"
    assert memory.rows[1][1] == "– (6.1x)"
    assert [claim.here for claim in report.claims] == [
        "40.0 to 160.0; 3 of 3 cells reach the paper's", "1.0 to 1.0; 0 of 1 cells reach the paper's"
    ]  # fmt: skip
    page = (tmp_path / "report.html").read_text()
    assert "n = 2,048, k = 128, unfused: out of memory." in page
    assert "k above n/2 is not measured" in page
    record = json.loads((tmp_path / "records.jsonl").read_text().splitlines()[0])
    assert record["name"] == "speed"


def test_small_scale_is_of_base_size_beside_both_baselines():
    cells, names = table3.chosen_cells("table3", "small", device="cpu", threads=1)
    assert {cell.size for cell in cells} == {"base"}
    assert sorted({cell.length for cell in cells}) == [512, 1024, 2048, 4096]
    assert {"sdpa", "unfused", "ours-linear"} == set(names)


@pytest.mark.parametrize("name", ["recurrent", "reformer"])
def test_a_pass_of_what_the_benchmark_does_not_have(name):
    (seconds,) = measured("time", name, CELL, 1)["seconds"]
    assert seconds > 0
    assert set(measured("memory", name, CELL, 1)) == {"growth"}


def test_seconds_and_memory_are_of_two_processes_and_only_one_has_the_slow_allocator(monkeypatch):
    asked = []

    def run(command, *, env, **_):
        task = json.loads(command[-1])["task"]
        asked.append((task, env.items() >= children.ALLOCATOR.items()))
        printed = json.dumps({"growth": 7} if task == "memory" else {"seconds": [1.0]})
        return subprocess.CompletedProcess(command, 0, stdout=f"noise\n{printed}\n", stderr="")

    for name in children.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(children.subprocess, "run", run)
    assert measured_apart("recurrent", CELL, 1, 9.0) == {"growth": 7, "seconds": [1.0]}
    assert asked == [("memory", True), ("time", False)]


def test_why_there_is_no_result(monkeypatch):
    def fails(error):
        def build(shape):
            raise error

        monkeypatch.setitem(growth.BUILDERS, "performer", ("Performer", build))
        return reported("time", "performer", CELL, 1)["missing"]

    assert fails(MissingDependencyError('"x" is missing')) == 'not installed: "x" is missing'
    assert fails(MemoryError()) == "out of memory"
    assert fails(ValueError("of another kind")) == "ValueError: of another kind"


def test_table_1_tries_again_what_lacked_a_package(tmp_path, monkeypatch):
    monkeypatch.setattr(table1, "measured_cells", made_up)
    tried = []

    def apart(name, cell, *_):
        tried.append(name)
        lacks = name == "performer" and tried.count("performer") <= 2
        return {"missing": "not installed: it"} if lacks else {"seconds": [1.0], "growth": 2**20}

    monkeypatch.setattr(table1, "measured_apart", apart)
    for _ in range(3):
        table = table1.reproduce_table1("small", tmp_path, lengths=[512, 1024], slots=[64], progress=False).table
    assert tried == ["recurrent"] * 2 + ["reformer"] * 2 + ["performer"] * 4
    assert [row[6] for row in table.rows if row[0] == "Performer"] == ["1,000"]


def test_a_process_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(growth.sys, "executable", "/bin/false")
    assert measured_apart("recurrent", CELL, 1, 9.0) == {"missing": "its process ended with status 1"}
