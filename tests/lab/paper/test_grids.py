"""Tables 1 and 3 from made-up rows of the benchmark, and figure 1 from a spectrum."""

from pathlib import Path

import pytest
from json_lines import write_lines
from tiny_models import save_bert

from longform.errors import ConfigurationError
from longform_lab.commands.spectrum import eager_encoder
from longform_lab.paper import grids
from longform_lab.paper.figure1 import page_of_figure1, reproduce_figure1
from longform_lab.paper.grids import chosen_cells, exponent, reproduce_grid
from longform_lab.records import Record
from longform_lab.report import Claim, Report
from longform_text.facts import hardware, versions

MACHINE = {"hardware": hardware(), "versions": versions(), "commit": "x"}


def made_up(cells, competitors, effort, *, output):
    """Unfused attention takes n² / 1000 seconds and does not fit above 1,024 tokens; ours n k / 10,000."""
    rows = []
    for cell in cells:
        n, k = cell.length, cell.shape.slots
        for name in competitors:
            seconds = n * k / 1e4 if name.startswith("ours") else n * n / 1e3
            metrics = {
                "seconds": seconds, "peak_mib": float(n), "missing": None, "texts_against_unfused": 1.0,
                "against_unfused": n * n / 1e3 / seconds, "against_sdpa": 2.0,
            }  # fmt: skip
            if n > 1024 and name == "unfused":
                metrics = {"missing": "out of memory"}
            rows.append(Record(name="speed", settings=cell.settings(name), metrics=metrics, **MACHINE))
    return rows


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "run_grid", made_up)


def measured(subject: str, output: Path, *lengths: int) -> Report:
    return reproduce_grid(subject, "small", output, lengths=lengths, device="cpu")


def test_exponents() -> None:
    assert exponent({n: 3.0 * n**1.5 for n in (64, 128, 512)}) == pytest.approx(1.5)
    assert exponent({1: 5.0, 100: 10.0, 200: 40.0, 400: 160.0}) == pytest.approx(2.0)  # the three longest
    assert exponent({100: 1.0}) is None


def test_table_1(tmp_path: Path) -> None:
    report = measured("table1", tmp_path, 512, 1024, 2048)
    assert report.claims == [
        Claim("Transformer: O(n²)", "time ~ n^2.00", True),
        Claim("Linformer: O(n)", "time ~ n^1.00", True),
    ]
    rows = {row[0]: row for row in report.sections[0].table.rows}
    assert rows["BERT, unfused attention"][3:] == ["2.00", "1.00", "1,024"]
    assert rows["Longform, linear, layerwise"][1:] == ["O(n)", "O(1)", "1.00", "1.00", "2,048"]
    assert rows["recurrent (LSTM, both directions)"][1:5] == ["O(n)", "O(n)", "2.00", "1.00"]
    page = (tmp_path / "report.html").read_text()
    assert "out of memory" in page
    assert page.count("data:image/png;base64,") == 2
    with pytest.raises(ConfigurationError, match="two lengths"):
        measured("table1", tmp_path, 512)
    with pytest.raises(ConfigurationError, match="was begun with other settings or data"):
        measured("table1", tmp_path, 512, 1024)


def test_table_3(tmp_path: Path) -> None:
    report = measured("table3", tmp_path, 512, 2048)
    assert report.sections[0].table.rows[0][:2] == ["512", "128"]
    assert [claim.here for claim in report.claims] == [
        "20.0 to 160.0; 6 of 6 cells reach the paper's",
        "1.0 to 1.0; 0 of 6 cells reach the paper's",
    ]
    assert "k above n/2 is not measured" in (tmp_path / "report.html").read_text()


def test_small_scale_is_of_base_size_beside_both_baselines() -> None:
    cells, names = chosen_cells("table3", "small", device="cpu")
    assert {cell.size for cell in cells} == {"base"}
    assert sorted({cell.length for cell in cells}) == [512, 1024, 2048, 4096]
    assert {"sdpa", "unfused", "ours-linear"} == set(names)


def test_a_spectrum_and_its_report(tmp_path, tiny_tokenizer):
    source = save_bert(tmp_path / "tiny-bert", tiny_tokenizer)
    texts = tmp_path / "texts.jsonl"
    rows = [{"body": "the long text and the short text is near " * 4}] * 2
    rows.insert(0, {"body": "too short"})
    write_lines(texts, rows)
    options = {"models": [str(source)], "text_field": "body", "texts": 2, "max_length": 16, "progress": False}
    found = reproduce_figure1(
        "small", [str(texts)], tmp_path / "out", opener=lambda name: eager_encoder(name, "cpu"), **options
    )
    assert found[0].spectrum.cumulative.shape == (2, 3, 16)  # layers, heads, n
    assert (found[0].spectrum.texts, found[0].spectrum.passed_over) == (2, 1)
    assert "data:image/png;base64," in (tmp_path / "out" / "report.html").read_text()
    page = page_of_figure1(found)
    share = float(found[0].spectrum.cumulative[1, :, 3].mean())
    assert page.sections[0].table.rows[1][1].startswith(f"{share:.1%} ")
    assert [claim.paper[:11] for claim in page.claims] == ["a long tail", "higher laye"]
    again = reproduce_figure1(
        "small", [str(texts)], tmp_path / "out", opener=lambda name: pytest.fail("measured again"), **options
    )
    assert (again[0].spectrum.cumulative == found[0].spectrum.cumulative).all()


def test_standard_input_is_not_read_twice(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read again"):
        reproduce_figure1("small", ["-"], tmp_path, opener=lambda name: None, models=["a", "b"])
