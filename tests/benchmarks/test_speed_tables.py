import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from longform_lab.records import Record
from longform_lab.tables import draw, speed_shapes
from longform_lab.tables import write as tables
from longform_lab.tables.speed_tables import SPEED

HARDWARE = {"cpu": "a CPU", "cpu_features": ["avx2"], "cores": 2, "threads": 2, "gpu": None}
KINDS = ("products", "attention", "activation", "normalisation", "elementwise", "copies", "other")
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0"}


def speed_record(competitor: str, length: int, slots: int, *, date: str = "2026-01-01", **metrics: Any) -> Record:
    """Of base size, one text, unless ``metrics`` says otherwise by the name of a setting."""
    settings = {path.partition(".")[2]: value for path, value in SPEED.items() if path.startswith("settings.")}
    settings |= {"size": "base", "work": "inference", "competitor": competitor, "length": length, "slots": slots}
    settings |= {name: metrics.pop(name) for name in settings.keys() & metrics.keys()}
    return Record(
        name="speed", settings=settings, metrics=metrics, hardware=HARDWARE, versions=VERSIONS, commit="abc", date=date
    )


def body(table: str, records: Sequence[Record]) -> list[str]:
    """The rows of a table, without its head and the line under it."""
    return [line for line in tables.render_table(table, records).splitlines() if line.startswith("|")][2:]


def both_orders(older: Record, newer: Record) -> list[list[Record]]:
    """The two with either of them measured first."""
    dates = ("2026-01-01", "2026-01-02")
    return [
        [dataclasses.replace(older, date=dates[place]), dataclasses.replace(newer, date=dates[1 - place])]
        for place in (0, 1)
    ]


def test_machines_with_amx_have_tables_of_their_own() -> None:
    both = [
        speed_record("ours-linear", 512, 256, seconds=seconds, against_sdpa=0.5 / seconds) for seconds in (1.0, 0.25)
    ]
    both[1] = dataclasses.replace(both[1], hardware={**HARDWARE, "cpu_features": ["avx2", "amx_bf16"]})
    assert body("seconds", both) == ["| 512 | 1 |"]
    assert body("speed_amx", both) == ["| 512 | 2.00 |"]


def test_what_another_preset_does_not_measure_hides_nothing() -> None:
    shares = {f"share_{kind}": 0.9 if kind == "products" else 1 / 60 for kind in KINDS}
    bars = speed_record("ours-linear", 512, 256, seconds=0.2, against_sdpa=1.5, against_floor=1.2, peak_mib=None,
                        against_unfused=None, texts_against_unfused=None, **shares)  # fmt: skip
    paper = speed_record("ours-linear", 512, 256, seconds=0.25, against_sdpa=None, against_floor=None, peak_mib=9.0,
                         against_unfused=1.75, texts_against_unfused=1.25)  # fmt: skip
    for records in both_orders(bars, paper):
        assert body("speed", records) == ["| 512 | 1.50 |"]
        assert len(body("where_time_goes", records)) == 1
        assert len(body("crossings", records)) == 1
        assert body("paper_table_3", records) == ["| 512 | 256 | 1.75 | 1.3 | 1.25 | 1.5 |"]
        assert [len(draw.chosen(records, "base", metric)) for metric in ("seconds", "peak_mib")] == [1, 1]
        (beside,) = draw.chosen(records, "base", "seconds")
        assert beside.metrics["seconds"] == 0.2
    (latest,) = draw.chosen(both_orders(paper, paper)[0], "base", "seconds")
    assert latest.date == "2026-01-02"


def test_a_lengths_numbers_are_of_the_run_that_has_most_of_them() -> None:
    whole = [speed_record(name, 512, 256, seconds=s, against_sdpa=4 / s, date="2026-01-01T10:00:00")
             for name, s in (("sdpa", 4.0), ("ours-linear", 2.0), ("lucidrains", 3.0))]  # fmt: skip
    later = [speed_record(name, 512, 256, seconds=s, against_sdpa=6 / s, date="2026-01-02T10:00:59")
             for name, s in (("sdpa", 6.0), ("ours-linear", 5.0))]  # fmt: skip
    other = speed_record("tatp22", 512, 256, seconds=9.0, date="2026-01-03T10:00:00")
    assert body("seconds", [*later, *whole, other]) == ["| 512 | 2 | 4 | 3 | 9 |"]
    third = speed_record("lucidrains", 512, 256, seconds=7.0, against_sdpa=6 / 7, date="2026-01-02T10:00:59")
    assert body("seconds", [*later, *whole, third]) == ["| 512 | 5 | 6 | 7 |"]


def test_the_line_under_a_table_is_about_what_it_shows() -> None:
    slow = speed_record("ours-mean", 512, 256, seconds=0.25)
    fast = dataclasses.replace(slow, settings=slow.settings | {"dtype": "int8"})
    lone = dataclasses.replace(speed_record("ours-mean", 128, 64, seconds=0.1), commit="lone")
    assert "lone" not in tables.render_table("precision", [slow, fast, lone])


def test_the_papers_table_keeps_rows_that_have_memory() -> None:
    whole = speed_record("ours-linear", 1_024, 256, against_unfused=1.5, texts_against_unfused=4.0)
    bars = speed_record("ours-linear", 1_024, 256, against_unfused=2.7, texts_against_unfused=None)
    for records in both_orders(whole, bars):
        assert body("paper_table_3", records) == ["| 1,024 | 256 | 1.50 | 1.6 | 4.00 | 2.9 |"]


def test_another_k_takes_no_row_from_where_the_time_goes() -> None:
    shares = {f"share_{kind}": 0.9 if kind == "products" else 1 / 60 for kind in KINDS}
    standard = speed_record("ours-linear", 512, 256, against_floor=1.25, **shares)
    other = speed_record("ours-linear", 512, 128, against_floor=2.0, **shares)
    for records in both_orders(standard, other):
        (row,) = body("where_time_goes", records)
        assert row.endswith("| 1.25 |")


def test_other_implementations_are_shown_as_times_the_time_of_ours() -> None:
    records = [
        speed_record("ours-linear", 512, 256, repeats=5, **{"against_ours-linear": 1.0}),
        speed_record("ours-window", 512, 256, repeats=5, **{"against_ours-linear": 0.5}),
        speed_record("tatp22", 512, 256, repeats=5, **{"against_ours-linear": 0.8}),
        speed_record("ours-linear", 128, 64, repeats=5, **{"against_ours-linear": 1.0}),
    ]
    assert tables.render_table("peers", records).splitlines()[:3] == [
        "| tokens | tatp22/linformer-pytorch |", "|---|---|", "| 512 | 1.25 |",
    ]  # fmt: skip


def test_fewer_rounds_than_five_are_said() -> None:
    records = [
        speed_record("sdpa", 512, 256, against_sdpa=1.0, seconds=9.0, repeats=1),
        speed_record("ours-linear", 512, 256, against_sdpa=1.5, seconds=6.0, repeats=4),
        speed_record("ours-linear", 128, 64, against_sdpa=1.25, seconds=3.0, repeats=5),
    ]
    assert body("speed", records) == ["| 128 | 1.25 | – |", "| 512 | 1.50 (1) | 1.00 (1) |"]
    assert body("seconds", records) == ["| 128 | 3 | – |", "| 512 | 6 (4) | 9 (1) |"]


def test_memory_is_minilms_and_a_gpu_is_in_no_table_of_cpus() -> None:
    cpu = speed_record("sdpa", 512, 256, size="minilm", peak_mib=12.4, repeats=2)
    gpu = speed_record("sdpa", 512, 256, device="cuda", against_sdpa=1.0, against_floor=1.5, seconds=0.5)
    assert body("pass_memory", [cpu, gpu]) == ["| 512 | 12 |"]
    assert body("speed", [cpu, gpu]) == []


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
        "|---|---|---|",
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
    records[2].metrics["against_unfused"] = 0.75
    assert body("crossings", records) == ["| base | inference | Longform, mean | 2,048 | 128 | 1.10 | 2,048 | 2.5 |"]


def test_columns_are_the_precisions_that_were_measured() -> None:
    slow = speed_record("ours-mean", 512, 256, seconds=0.25)
    settings = dict(slow.settings)
    fast = dataclasses.replace(slow, settings=settings | {"dtype": "int8"}, metrics={"seconds": 0.125})
    lone = dataclasses.replace(slow, settings=settings | {"length": 128, "slots": 64})
    assert tables.render_table("precision", [slow, fast, lone]).splitlines()[:3] == [
        "| size | tokens | encoder | bfloat16 | int8 |", "|---|---|---|---|---|",
        "| base | 512 | Longform, mean | 250.0 | 125.0 |",
    ]  # fmt: skip


def test_time_is_shared_out_where_it_was_profiled() -> None:
    shares = {f"share_{kind}": 0.9 if kind == "products" else 1 / 60 for kind in KINDS}
    records = [speed_record("sdpa", 512, 256, against_floor=1.2, **shares), speed_record("tatp22", 512, 256)]
    assert tables.render_table("where_time_goes", records).splitlines()[2:4] == [
        "| 512 | full attention, SDPA | 90% | 2% | 2% | 2% | 2% | 2% | 2% | 1.20 |", "",
    ]  # fmt: skip


def test_pictures_are_drawn_from_records_and_shown_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_shapes, "PICTURES", tmp_path)
    records = [speed_record("sdpa", n, n // 2, seconds=n * 1e-3) for n in (128, 256)]
    assert tables.render_table("speed_pictures", records[:1]) == "*Not measured yet.*\n"
    assert draw.draw_speed(records[:1], tmp_path) == []
    assert [path.name for path in draw.draw_speed(records, tmp_path)] == ["speed-time.png"]
    assert tables.render_table("speed_pictures", records).startswith("![Seconds of a pass")
    assert "](../pictures/speed-time.png)" in tables.render_table("speed_pictures", records)


def test_the_papers_table_3_stands_beside_ours() -> None:
    records = [speed_record("ours-linear", 512, 128, against_unfused=1.6, texts_against_unfused=1.25)]
    assert tables.render_table("paper_table_3", records).splitlines()[2] == ("| 512 | 128 | 1.60 | 1.5 | 1.25 | 1.7 |")


def test_a_picture_holds_what_was_measured_with_one_number_of_threads() -> None:
    records = [speed_record("sdpa", n, min(n // 2, 256), seconds=n * 1e-3) for n in (128, 256, 512)]
    records[1] = dataclasses.replace(records[1], hardware={**HARDWARE, "threads": HARDWARE["threads"] + 1})
    assert draw.chosen(records, "base", "seconds") == [records[0], records[2]]
