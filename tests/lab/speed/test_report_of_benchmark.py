import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longform.errors import ConfigurationError
from longform_lab import pictures
from longform_lab.commands import benchmark
from longform_lab.speed import plots
from longform_lab.speed.cells import Effort
from longform_lab.speed.competitors import FAMILIES, all_competitors, chosen_competitors
from longform_lab.speed.grid import key_of, run_grid
from longform_lab.speed.paper_table import MEMORY, SLOTS, TIME, paper_rows
from longform_lab.speed.presets import PRESETS, chosen_stages
from longform_lab.speed.report import paper_table, report_benchmark, series_of, series_table
from longform_lab.speed.selection import cells_of, chosen_threads, with_choices
from longform_lab.speed.shapes import SIZES, Cell, Shape
from longform_text.cli.main import main

COMMON: dict[str, Any] = {"size": "tiny", "batch": 1, "dtype": "float32", "mode": "eager", "work": "inference"}


def paper_cells() -> list[Cell]:
    return [Cell(length=512, slots=slots, device="cpu", threads=1, **COMMON) for slots in (128, 256)]


def test_the_report_has_tables_pictures_and_reasons(tmp_path: Path, fake_processes) -> None:
    fake_processes.dies = {"unfused": "memory"}
    competitors = chosen_competitors(["ours-linear", "sdpa", "unfused"])
    cells = [Cell(length=length, slots=16, device="cpu", threads=1, **COMMON) for length in (32, 64)]
    records = run_grid(cells, competitors, Effort(), output=tmp_path, tell=lambda _: None)
    report_benchmark(records, competitors, tmp_path, {"repeats": 5})
    page = (tmp_path / "report.html").read_text()
    assert page.count('src="data:image/png;base64,') == 2
    assert "out of memory" in page
    table = (tmp_path / "table.md").read_text()
    assert "| 64 | full attention, SDPA | – | 1 | 0.1 | 0.0% | 1.00 | 500,000 | 0 | 5 |" in table
    assert {path.suffix for path in tmp_path.iterdir()} >= {".png", ".md", ".html", ".jsonl"}


def test_a_line_of_the_picture_is_of_the_largest_k(
    tmp_path: Path, fake_processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, _: drawn.extend(figure.axes[0].get_lines()))
    competitors = chosen_competitors(["ours-linear"])
    cells = [Cell(length=64, slots=slots, device="cpu", threads=1, **COMMON) for slots in (16, 8)]
    records = run_grid(cells, competitors, Effort(), output=tmp_path, tell=lambda _: None)
    records[0].metrics["seconds"] = 7.0
    plots.plot_times(records, competitors, "", tmp_path / "x.png")
    assert [list(line.get_xydata()[0]) for line in drawn] == [[64.0, 7.0]]


def test_texts_alone_and_in_batches_are_apart(tmp_path: Path, fake_processes) -> None:
    what = {"sizes": ["tiny"], "lengths": [32, 64], "batches": ["1", "full"], "batch_tokens": 64}
    (selection,) = chosen_stages("small", what, {"memory": False})
    assert not selection.memory
    cells = cells_of(selection, device="cpu", threads=1)
    assert [(cell.length, cell.batch) for cell in cells] == [(32, 1), (64, 1), (32, 2)]
    competitors = chosen_competitors(["sdpa"])
    records = run_grid(cells, competitors, Effort(), output=tmp_path, tell=lambda _: None)
    assert [len(rows) for rows in series_of(records).values()] == [2, 1]
    assert len(series_table(records, competitors)[1]) == 3


def test_the_papers_cells_beside_ours(tmp_path: Path, fake_processes) -> None:
    fake_processes.slow = {"unfused": 512e-6 * 1.4}
    competitors = chosen_competitors(["ours-linear", "unfused"])
    records = run_grid(paper_cells(), competitors, Effort(), output=tmp_path, tell=lambda _: None)
    rows = paper_rows(records)
    assert [(row["n"], row["k"], row["paper_time"], row["paper_memory"]) for row in rows] == [
        (512, 128, 1.5, 1.7),
        (512, 256, 1.3, 1.5),
    ]
    assert [row["time"] for row in rows] == pytest.approx([1.4, 1.4])
    assert [row["memory"] for row in rows] == [1.0, 1.0]
    assert [(row[6], row[9]) for row in paper_table(records)[1]] == [("no", "no"), ("yes", "no")]


def test_the_papers_table_has_a_cell_for_each_k_up_to_half_the_text() -> None:
    for table in (TIME, MEMORY):
        assert {n: len(values) for n, values in table.items()} == {
            n: sum(slots <= n // 2 for slots in SLOTS) for n in (2**power for power in range(9, 17))
        }


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_cells_whose_models_exist(name: str) -> None:
    rows: set[str] = set()
    for stage in PRESETS[name]:
        cells = cells_of(stage, device="cpu", threads=2)
        assert {cell.length for cell in cells} == set(stage.lengths)
        added = [key_of(cell.settings(each)) for cell in cells for each in chosen_competitors(stage.competitors)]
        assert len(set(added)) == len(added)
        assert not rows.issuperset(added)
        rows.update(added)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"sizes": ["huge"]}, 'size="huge"'),
        ({"dtypes": ["float8"]}, 'dtype="float8"'),
        ({"batches": ["many"]}, 'batches="many"'),
        ({"lengths": [1]}, "length=1"),
        ({"slots": [-1]}, "slots=-1"),
        ({"batch_tokens": -5}, "batch_tokens=-5"),
    ],
)
def test_what_does_not_exist_is_named(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cells_of(with_choices(PRESETS["small"][0], **choice), device="cpu", threads=1)
    with pytest.raises(ConfigurationError, match="threads=0"):
        chosen_threads(0)


@pytest.mark.parametrize(("native", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_presets_have_cells_on_machines_without_bfloat16(
    native: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longform_lab.speed.selection.native_bfloat16", lambda device: native)
    assert {cell.dtype for cell in cells_of(PRESETS["bars"][0], device="cpu", threads=1)} == {expected}
    both = with_choices(PRESETS["small"][0], dtypes=["auto", expected], lengths=[128])
    assert [cell.dtype for cell in cells_of(both, device="cpu", threads=1)] == [expected]


def test_an_effort_has_time() -> None:
    with pytest.raises(ConfigurationError, match=r"cell_seconds=0\.0 must be"):
        Effort(cell_seconds=0.0)


def test_k_is_at_most_half_the_text() -> None:
    cell = Cell(length=128, slots=256, device="cpu", threads=1, **COMMON)
    assert cell.shape == Shape(SIZES["tiny"], 128, 64)
    assert replace(cell, slots=cell.settings("sdpa")["slots"]).shape == cell.shape


def test_the_command(tmp_path: Path, fake_processes, capsys: pytest.CaptureFixture[str]) -> None:
    records = tmp_path / "kept.jsonl"
    arguments = [
        "benchmark", "--sizes", "tiny", "--lengths", "32", "64", "--dtypes", "float32", "--competitors", "ours-mean",
        "sdpa", "--slots", "8", "--repeats", "3", "--threads", "1", "--device", "cpu",
        "--output", str(tmp_path / "out"), "--records", str(records),
    ]  # fmt: skip
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "ours-mean: 0.0 ms" in printed.out + printed.err
    assert len(records.read_text().splitlines()) == 4
    assert (tmp_path / "out" / "report.html").exists()
    assert main([*arguments, "--restart"]) == 0
    assert len(records.read_text().splitlines()) == 8
    assert len(list((tmp_path / "out").glob("records-until-*.jsonl"))) == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], 'device is "cuda", but torch sees 0 of its kind here: give cpu, or auto'),
        (["--repeats", "0"], "repeats=0 must be at least 1"),
        (["--repeats", "-3"], "repeats=-3 must be at least 1"),
        (["--batch-tokens", "-5"], "batch_tokens=-5 must be at least 1"),
        (["--preset", "smal"], '--preset is "smal"; it is one of small, bars, .*; did you mean "small"?'),
        (["--sizes", "bass"], 'it is one of tiny, minilm, base; did you mean "base"?'),
        (["--competitors", "sdpa", "bigbert"], 'one of all, ours, .*; did you mean "bigbird"?'),
    ],
)
def test_what_the_command_cannot_do_is_one_line(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_processes,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["benchmark", *options, "--output", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert re.search(message.replace("?", r"\?"), line)
    assert fake_processes.calls == []
    assert not (tmp_path / "out").exists()


def test_the_command_names_what_the_tables_have() -> None:
    assert list(benchmark.PRESETS) == list(PRESETS)
    assert list(benchmark.SIZES) == list(SIZES)
    assert (benchmark.FAMILIES, list(benchmark.COMPETITORS)) == (FAMILIES, list(all_competitors()))
