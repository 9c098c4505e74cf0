"""Tables 1 and 3 from made-up rows of the benchmark."""

import json

import pytest

from longform.errors import ConfigurationError
from longform.runs.facts import hardware, versions
from longform_lab.paper import table1, table3
from longform_lab.records import Record
from longform_lab.report import Claim

MACHINE = {"hardware": hardware(), "versions": versions(), "commit": "x"}


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
    report = table1.reproduce_table1("small", tmp_path, lengths=[512, 1024, 2048])
    rows = {row[0]: row for row in report.sections[0].table.rows}
    assert report.claims == [
        Claim("Transformer: O(n²)", "time ~ n^2.00", True), Claim("Linformer: O(n)", "time ~ n^1.00", True)
    ]  # fmt: skip
    assert rows["BERT, unfused attention"][3:6] == ["2.00", "1.00", "1,024"]
    assert rows["Longform, linear, layerwise"][1:6] == ["O(n)", "O(1)", "1.00", "1.00", "2,048"]
    assert rows["recurrent (LSTM, both directions)"][1:5] == ["O(n)", "O(n)", "2.00", "1.00"]
    page = (tmp_path / "report.html").read_text()
    assert "n = 2,048: out of memory" in page
    assert "data:image/png;base64," in page
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == len(rows)
    with pytest.raises(ConfigurationError, match="two lengths"):
        table1.reproduce_table1("small", tmp_path, lengths=[512])
    with pytest.raises(ConfigurationError, match="was begun with other settings or data"):
        table1.reproduce_table1("small", tmp_path, lengths=[512, 1024])


def test_table_3(tmp_path, monkeypatch):
    monkeypatch.setattr(table3, "measured_cells", made_up)
    report = table3.reproduce_table3("small", tmp_path, lengths=[512, 2048])
    tables = {section.title: section.table for section in report.sections}
    time = tables["Time, against unfused attention, the paper's baseline"]
    assert time.heads == ["n", "k = 128", "k = 256", "k = 512", "k = 1,024"]
    assert time.rows[0][:4] == ["512", "40.0x (1.5x)", "20.0x (1.3x)", "k above n/2"]
    memory = tables["Largest batch, against unfused attention, the paper's baseline"]
    assert memory.rows[0][1] == "1.00x (1.7x)"
    assert memory.rows[1][1] == "– (6.1x)"
    assert [claim.here for claim in report.claims] == [
        "20.0 to 160.0; 6 of 6 cells reach the paper's", "1.0 to 1.0; 0 of 2 cells reach the paper's"
    ]  # fmt: skip
    page = (tmp_path / "report.html").read_text()
    assert "n = 2,048, k = 128, unfused: out of memory." in page
    assert "k above n/2 is not measured" in page
    record = json.loads((tmp_path / "records.jsonl").read_text().splitlines()[0])
    assert record["name"] == "speed"


def test_small_scale_is_of_base_size_beside_both_baselines():
    cells, names = table3.chosen_cells("table3", "small", device="cpu")
    assert {cell.size for cell in cells} == {"base"}
    assert sorted({cell.length for cell in cells}) == [512, 1024, 2048, 4096]
    assert {"sdpa", "unfused", "ours-linear"} == set(names)
