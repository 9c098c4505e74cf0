"""Tables of passes and training steps on a GPU: eager, and as a captured graph."""

from collections.abc import Callable
from functools import partial
from typing import Any

from longform_lab.tables.table_kinds import MISSING, Cells, Row, Rows, Table, pivot

LENGTHS = (512, 8_192, 32_768, 65_536)  # others, and several texts, are in the records
TIMED = ["full attention", "BERT", "lucidrains", "linear, layerwise", "mean", "weighted mean", "window"]


def place(row: Row) -> tuple[int, int]:
    """Tokens of a text and the number of texts."""
    return row["settings"]["length"], row["settings"]["batch"]


def _line(row: Row) -> int:
    return TIMED.index(row["settings"]["competitor"])


def _both_times(row: Row) -> str:
    found = (row["metrics"].get(key) for key in ("eager_ms", "graph_ms"))
    return " / ".join(MISSING if each is None else f"{each:.3g}" for each in found)


def _by_place(rows: Rows, *, cell: Callable[[Row], str]) -> Cells:
    """A row for each encoder, a column for each number of tokens of one text."""
    columns = sorted({place(row) for row in rows} & {(tokens, 1) for tokens in LENGTHS})
    heads = [f"{tokens:,}" for tokens, _ in columns]
    found = pivot(rows, down=_line, across=place, cell=cell, columns=columns)
    return ["", *heads], [[TIMED[line], *cells] for line, cells in found]


def _timings(work: str, cell: Callable[[Row], str]) -> Table:
    where: dict[str, Any] = {
        "settings.work": work,
        "settings.size": "base",
        "settings.device": "cuda",
        "settings.competitor": tuple(TIMED),
    }
    row = tuple(f"settings.{key}" for key in ("competitor", "length", "batch", "work"))
    return Table(make=partial(_by_place, cell=cell), records="gpu_timings", where=where, row=row, one_machine=True)


GPU_TABLES = {
    "gpu_inference": _timings("inference", _both_times),
    "gpu_training": _timings("train", _both_times),
}
