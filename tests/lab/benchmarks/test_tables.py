"""Rows that the tables of README.md and docs/ show of records, and the pictures that are drawn of them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from campaign import counting
from campaign.counting import Tally, result

from longform_lab.records import Record
from longform_lab.tables import draw, speed_shapes
from longform_lab.tables import write as tables
from longform_lab.tables.long_retrieval_tables import beside_each_other, contexts, longest_trained, passages
from longform_lab.tables.reproduction_tables import finetunings, of_this_version
from longform_lab.tables.speed_tables import SPEED

HARDWARE = {"cpu": "a CPU", "cpu_features": ["avx2"], "cores": 2, "threads": 2, "gpu": None}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0"}
Expected = dict[str, list[str]]  # the rows of a table by its name, with or without the head


def record(
    name: str, settings: dict[str, Any], date: str = "2026-01-01", commit: str = "abc", **metrics: Any
) -> Record:
    return Record(
        name=name, settings=settings, metrics=metrics, hardware=HARDWARE, versions=VERSIONS, commit=commit, date=date
    )


def speed(competitor: str, length: int, slots: int, *, date: str = "2026-01-01", **metrics: Any) -> Record:
    """Of base size, one text, unless ``metrics`` says otherwise by the name of a setting."""
    settings = {path.partition(".")[2]: value for path, value in SPEED.items() if path.startswith("settings.")}
    settings |= {"size": "base", "work": "inference", "competitor": competitor, "length": length, "slots": slots}
    settings |= {name: metrics.pop(name) for name in settings.keys() & metrics.keys()}
    return record("speed", settings, date, **metrics)


def with_hardware(made: Record, **hardware: Any) -> Record:
    return dataclasses.replace(made, hardware={**HARDWARE, **hardware})


def both_orders(older: Record, newer: Record) -> list[list[Record]]:
    """The two with either of them measured first."""
    dates = ("2026-01-01", "2026-01-02")
    return [
        [dataclasses.replace(older, date=dates[place]), dataclasses.replace(newer, date=dates[1 - place])]
        for place in (0, 1)
    ]


def of_a_run(date: str, **seconds: float) -> list[Record]:
    """Times of competitors, and how many times as fast as the first one they are."""
    names = {"sdpa": "sdpa", "ours": "ours-linear", "lucidrains": "lucidrains", "tatp22": "tatp22"}
    first = next(iter(seconds.values()))
    return [speed(names[name], 512, 256, seconds=s, against_sdpa=first / s, date=date) for name, s in seconds.items()]


def sts(model: str, score: float) -> Record:
    return record("sts", {"model": model}, sts_spearman=score)


def found(data: str, contender: str, score: float, date: str = "2026-01-01") -> Record:
    return record("long_retrieval", {"data": data, "contender": contender}, date, ndcg_at_10=score)


def equal_windows(competitor: str, work: str, *, seconds: float, times: float) -> Record:
    settings = {"work": work, "dtype": "bfloat16", "competitor": competitor}
    return record("equal_windows", settings, cpu_seconds=seconds, times_ours=times)


WHOLE, LATER = "2026-01-01T10:00:00", "2026-01-02T10:00:59"
CROSSINGS = [
    speed("ours-mean", n, min(256, n // 2), against_sdpa=ratio)
    for n, ratio in {128: 1.1, 256: 0.9, 512: 1.2, 2_048: 2.5}.items()
]
CASES: list[tuple[str, list[Record], Expected]] = [
    ("machines with AMX have tables of their own", [
        speed("ours-linear", 512, 256, seconds=1.0, against_sdpa=0.5),
        with_hardware(speed("ours-linear", 512, 256, seconds=0.25, against_sdpa=2.0), cpu_features=["amx_bf16"]),
    ], {"speed": ["| 512 | 0.50 |"], "speed_amx": ["| 512 | 2.00 |"]}),
    ("a length's numbers are of the run that has most of them", [
        *of_a_run(LATER, sdpa=6.0, ours=5.0), *of_a_run(WHOLE, sdpa=4.0, ours=2.0, lucidrains=3.0),
        *of_a_run("2026-01-03T10:00:00", tatp22=9.0),
    ], {"speed": ["| 512 | 2.00 | 1.00 | 1.33 | 1.00 |"]}),
    ("and of the later of two that have as many", [
        *of_a_run(LATER, sdpa=6.0, ours=5.0, lucidrains=7.0), *of_a_run(WHOLE, sdpa=4.0, ours=2.0, lucidrains=3.0),
    ], {"speed": ["| 512 | 1.20 | 1.00 | 0.86 |"]}),
    *(("the paper's table keeps rows that have memory", records,
       {"paper_table_3": ["| 1,024 | 1.50 (1.6), 4.00 (2.9) |"]})
      for records in both_orders(
          speed("ours-linear", 1_024, 256, against_unfused=1.5, texts_against_unfused=4.0),
          speed("ours-linear", 1_024, 256, against_unfused=2.7, texts_against_unfused=None))),
    ("fewer rounds than five are said", [
        speed("sdpa", 512, 256, against_sdpa=1.0, seconds=9.0, repeats=1),
        speed("ours-linear", 512, 256, against_sdpa=1.5, seconds=6.0, repeats=4),
        speed("ours-linear", 128, 64, against_sdpa=1.25, seconds=3.0, repeats=5),
    ], {"speed": ["| 128 | 1.25 | – |", "| 512 | 1.50 (1) | 1.00 (1) |"]}),
    ("a GPU is in no table of CPUs, and lengths that are not shown have no row", [
        speed("sdpa", 512, 256, device="cuda", against_sdpa=1.0, against_floor=1.5, seconds=0.5),
        speed("sdpa", 2_048, 256, against_sdpa=1.0), speed("sdpa", 256, 128, against_sdpa=1.0),
    ], {"speed": ["| 2,048 | 1.00 |"]}),
    ("a row a length and a column a competitor", [
        speed("sdpa", 512, 256, against_sdpa=1.0), speed("ours-linear", 512, 256, against_sdpa=1.5),
        speed("ours-linear", 512, 128, against_sdpa=9.0),  # for the paper's table
        speed("ours-linear", 128, 64, against_sdpa=1.25),
        speed("tatp22", 512, 256, against_sdpa=None, missing="out of memory"),
    ], {"speed": ["| tokens | Longform, linear, layerwise | full attention, SDPA |", "| 128 | 1.25 | – |",
                  "| 512 | 1.50 | 1.00 |"]}),
    ("where it pays is the shortest length without a slower longer one",
     [*CROSSINGS, speed("tatp22", 512, 256, against_sdpa=9.0)],
     {"crossings": ["| base | inference | Longform, mean | 512 | 128 | 1.10 | 2,048 | 2.5 |"]}),
    ("nor one that is slower than unfused attention", [
        *CROSSINGS[:2], speed("ours-mean", 512, 256, against_sdpa=1.2, against_unfused=0.75), CROSSINGS[3],
    ], {"crossings": ["| base | inference | Longform, mean | 2,048 | 128 | 1.10 | 2,048 | 2.5 |"]}),
    ("the paper's table 3 beside ours",
     [speed("ours-linear", 512, 128, against_unfused=1.6, texts_against_unfused=1.25)],
     {"paper_table_3": ["| 512 | 1.60 (1.5), 1.25 (1.7) |"]}),
    ("seconds at equal windows: a row a pass, in the order of the table", [
        equal_windows(name, work, seconds=s, times=ratio) for work in ("train", "inference") for name, s, ratio in (
            ("ours-window", 0.5, 1.0), ("modernbert", 2.0, 4.04))
    ], {"equal_windows": [
        "| forward, bfloat16 | 0.50 s (1.0) | – | 2.00 s (4.0) | – |",
        "| training step, bfloat16 | 0.50 s (1.0) | – | 2.00 s (4.0) | – |",
    ]}),
    ("quality in the README: a way to read in each row", [
        sts("original", 90.0), sts("minilm-16k", 85.0), sts("minilm-passages", 1.0),
        sts("original trained as minilm-16k", 87.0),
        found("qmsum-val", "original, cut", 30.0), found("qmsum-val", "original, chunks averaged", 35.0),
        found("qmsum-val", "minilm-16k", 1.0), found("qmsum-val", "minilm-16k", 40.0, "2026-01-02"),
        found("qmsum-val", "minilm-16k + BM25", 50.0),
        found("qmsum-val", "original trained as minilm-16k, chunks averaged", 41.0),
        found("qmsum-val", "original trained as minilm-16k, chunks averaged + BM25", 51.0),
        found("scifact", "BM25", 45.0),
    ], {"readme_quality": [
        "| original, first 512 tokens | 30.0 | – | – | 90.0 |",
        "| original, chunks | 35.0 | – | – | – |",
        "| original, fine-tuned, chunks | 41.0 | – | – | 87.0 |",
        "| Longform, `minilm-16k` | 40.0 | – | – | 85.0 |",
        "| BM25 | – | – | 45.0 | – |",
        "| original, fine-tuned, chunks, and BM25 | 51.0 | – | – | – |",
        "| Longform, `minilm-16k`, and BM25 | 50.0 | – | – | – |",
    ]}),
]  # fmt: skip


def shown(table: str, records: list[Record]) -> list[str]:
    """The head and the rows of a table."""
    lines = tables.render_table(table, records).splitlines()
    return [line for line in lines if line.startswith("|") and not line.startswith("|--")]


@pytest.mark.parametrize(("records", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rows_of_records(records: list[Record], expected: Expected) -> None:
    for table, rows in expected.items():
        lines = shown(table, records)
        assert lines[len(lines) - len(rows) :] == rows
        assert len(lines) - len(rows) <= 1


def test_what_another_preset_does_not_measure_hides_nothing() -> None:
    bars = speed("ours-linear", 512, 256, seconds=0.2, against_sdpa=1.5, against_floor=1.2, peak_mib=None,
                 against_unfused=None, texts_against_unfused=None)  # fmt: skip
    paper = speed("ours-linear", 512, 256, seconds=0.25, against_sdpa=None, against_floor=None, peak_mib=9.0,
                  against_unfused=1.75, texts_against_unfused=1.25)  # fmt: skip
    for records in both_orders(bars, paper):
        assert shown("speed", records)[1:] == ["| 512 | 1.50 |"]
        assert len(shown("crossings", records)) == 2
        assert shown("paper_table_3", records)[1:] == ["| 512 | 1.75 (1.3), 1.25 (1.5) |"]
        assert len(draw.chosen(records, "base", "peak_mib")) == 1
        (beside,) = draw.chosen(records, "base", "seconds")
        assert beside.metrics["seconds"] == 0.2
    (latest,) = draw.chosen(both_orders(paper, paper)[0], "base", "seconds")
    assert latest.date == "2026-01-02"


def test_the_line_under_a_table_is_about_what_it_shows() -> None:
    shown_one = speed("sdpa", 512, 256, against_sdpa=1.0)
    of_another_k = speed("sdpa", 512, 64, against_sdpa=1.0, date="2030-01-01")
    assert "2030" not in tables.render_table("speed", [shown_one, of_another_k])


def test_pictures_are_drawn_from_records_and_shown_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_shapes, "PICTURES", tmp_path)
    records = [speed("sdpa", n, n // 2, seconds=n * 1e-3) for n in (128, 256)]
    assert tables.render_table("speed_pictures", records[:1]) == "*Not measured yet.*\n"
    assert draw.draw_speed(records[:1], tmp_path) == []
    assert [path.name for path in draw.draw_speed(records, tmp_path)] == ["speed-time.png"]
    assert "](../pictures/speed-time.png)" in tables.render_table("speed_pictures", records)


def test_a_picture_holds_what_was_measured_with_one_number_of_threads() -> None:
    records = [speed("sdpa", n, min(n // 2, 256), seconds=n * 1e-3) for n in (128, 256, 512)]
    records[1] = with_hardware(records[1], threads=3)
    assert draw.chosen(records, "base", "seconds") == [records[0], records[2]]


def test_a_file_of_the_campaign_is_the_sum_of_the_newest_of_each_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SCALE", "full")
    records = [
        result("a::one", "kill", Tally(kills=20, compared=20), seconds=3.0, failed=True),
        result("a::one", "kill", Tally(kills=30, compared=31), seconds=4.0, failed=False),
        result("a::two", "kill", Tally(kills=5, compared=6), seconds=5.0, failed=False),
        result("b::one", "fuzz", Tally(inputs=10_000), seconds=6.0, failed=True),
    ]
    assert shown("campaign", records)[1:] == [
        "| fuzz | 1 | 10,000 | 0 | 0 | 1 | 6 |",
        "| kill | 2 | 0 | 35 | 37 | 0 | 9 |",
    ]


def test_differences_in_retrieval_are_paired_by_query() -> None:
    scores = {"original, chunks averaged": 50.0, "BM25": 60.0, "window 64": 51.0, "window 64 + BM25": 64.0}
    rows = [
        {"settings": {"data": "qmsum-val", "contender": name}, "metrics": {"per_query": [[score, score]]}}
        for name, score in scores.items()
    ]
    assert beside_each_other(rows)[1] == [
        ["qmsum-val", "original, chunks averaged", "50.0", "", ""],
        ["qmsum-val", "BM25", "60.0", "+10.0 (+10.0 to +10.0)", ""],
        ["qmsum-val", "window 64", "51.0", "+1.0 (+1.0 to +1.0)", "64.0"],
    ]


def test_passages_of_each_length_are_compared_with_the_same_chunks_read_alone_and_the_best_of_them() -> None:
    values = {"BM25": 40.0, "alone": 50.0, "alone + 0.5 mean": 52.0, "alone, title": 60.0, "whole": 53.0,
              "whole + BM25": 55.0, "whole, title": 58.0}  # fmt: skip
    rows = [
        {"settings": {"data": "a", "contender": name, "steps": 7}, "metrics": {"per_query": [[value, value]]}}
        for name, value in values.items()
    ]
    assert passages(rows)[1] == [
        ["a", "7", "40.0 / –", "50.0 / 53.0", "– / –", "– / –", "60.0 / 58.0", "– / –", "+3.0 (+3.0 to +3.0)",
         "+1.0 (+1.0 to +1.0)"],
    ]  # fmt: skip
    short = {"settings": {"data": "a", "contender": "whole", "steps": 9, "length": 512}}
    older = {"settings": rows[0]["settings"] | {"steps": 1}}
    assert longest_trained([older, short, *rows]) == [short, *rows]


def test_tasks_of_context_have_a_line_each() -> None:
    rows = [
        {"settings": {"data": "siblings", "contender": name}, "metrics": {"per_query": [values]}}
        for name, values in (("BM25", [1.0, 3.0]), ("alone", [4.0, 8.0]), ("whole", [5.0, 9.0]))
    ]
    ((*cells, better, best),) = contexts(rows)[1]
    assert cells == ["siblings", "2.0", "6.0 / 7.0", "– / –", "– / –", "–", "– / –"]
    assert better == best == "+1.0 (+1.0 to +1.0)"


def finetuned(task: str, length: int, accuracy: float) -> dict[str, Any]:
    settings = {"original": "bundled", "healing_tokens": 0, "model": "original", "label": "original", "task": task}
    return {"settings": settings | {"seed": 0, "max_length": length}, "metrics": {"accuracy": accuracy}}


def test_the_original_stands_once_and_other_lengths_nowhere() -> None:
    healed = finetuned("SST-2", 64, 0.9)
    original = {"label": "original, full attention"}
    rows = [finetuned("SST-2", 64, 0.9), finetuned("IMDB", 256, 0.8), finetuned("IMDB", 512, 0.85), healed]
    for row in rows:
        row["settings"] |= original
    healed["settings"] |= {"healing_tokens": 9}
    heads, body = finetunings(of_this_version(rows))
    assert heads == ["healed on, tokens", "model", "SST-2", "IMDB", "average", "against the original", "seeds"]
    assert [line[:4] for line in body] == [["0", "original, full attention", "90.0 (93.1)", "80.0 (94.1)"]]


def test_a_linformer_of_the_older_version_is_left_out() -> None:
    old, new, first = (finetuned("SST-2", 64, 0.9) for _ in range(3))
    for each in (old, new):
        each["settings"] |= {"model": "linear-128-headwise", "label": "Linformer, 128"}
    new["settings"]["fit_length"] = False
    assert of_this_version([old, new, first]) == [new, first]
