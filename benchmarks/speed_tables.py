"""The tables of docs/benchmarks.md and docs/costs.md: rows of ``longform benchmark``."""

from functools import partial

from benchmarks.table_kinds import ComputedTable, Rows, TableDefinition
from longform.benchmarking.competitors import all_competitors
from longform.benchmarking.records import Record
from longform.benchmarking.report import paper_table

STANDARD_SLOTS = 256
SPEED = {"settings.dtype": "bfloat16", "settings.mode": "eager", "settings.batch": 1, "settings.device": "cpu"}


def by_competitor(rows: Rows, *, metric: str, form: str) -> tuple[list[str], list[list[str]]]:
    """A row a length, a column a competitor that has the metric anywhere."""
    cells = {
        (row["settings"]["length"], row["settings"]["competitor"]): row["metrics"][metric]
        for row in rows
        if row["metrics"].get(metric) is not None
        and row["settings"]["slots"] == min(STANDARD_SLOTS, row["settings"]["length"] // 2)
    }  # fmt: skip
    shown = [name for name in all_competitors() if any(name == competitor for _, competitor in cells)]
    lengths = sorted({length for length, _ in cells})
    header = ["tokens", *(all_competitors()[name].label for name in shown)]
    return header, [
        [f"{n:,}", *(format(cells[n, name], form) if (n, name) in cells else "–" for name in shown)] for n in lengths
    ]


def beside_the_paper(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The paper's Table 3 and ours."""
    return paper_table([Record(**row) for row in rows])


def speed(metric: str, form: str, *, size: str, work: str = "inference") -> ComputedTable:
    """One metric of the benchmark's rows: batch 1, bfloat16, k = 256 (n / 2 where that is less)."""
    return ComputedTable(
        make=partial(by_competitor, metric=metric, form=form), records="speed",
        where={**SPEED, "settings.size": size, "settings.work": work},
        row=("settings.length", "settings.competitor", "settings.slots"), order=("settings.length",),
    )  # fmt: skip


SPEED_TABLES: dict[str, TableDefinition | ComputedTable] = {
    "speed": speed("against_sdpa", ".2f", size="base"),
    "speed_minilm": speed("against_sdpa", ".2f", size="minilm"),
    "speed_training": speed("against_sdpa", ".2f", size="minilm", work="train"),
    "seconds": speed("seconds", ".4g", size="base"),
    "floor": speed("against_floor", ".2f", size="base"),
    "tokens_per_second": speed("tokens_per_second", ",.0f", size="base"),
    "pass_memory": speed("peak_mib", ",.0f", size="base"),
    "paper_table_3": ComputedTable(
        make=beside_the_paper, records="speed",
        where={**SPEED, "settings.size": "base", "settings.work": "inference", "settings.competitor": "ours-linear"},
        row=("settings.length", "settings.slots"), order=("settings.length", "settings.slots"),
    ),
}  # fmt: skip
