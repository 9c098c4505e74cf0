"""The table of passes on a GPU: eager, and as a captured graph."""

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


def _by_place(rows: Rows) -> Cells:
    """A row for each encoder, a column for each number of tokens of one text."""
    columns = sorted({place(row) for row in rows} & {(tokens, 1) for tokens in LENGTHS})
    found = pivot(rows, down=_line, across=place, cell=_both_times, columns=columns)
    return ["", *(f"{tokens:,}" for tokens, _ in columns)], [[TIMED[line], *cells] for line, cells in found]


GPU_TABLES = {
    "gpu_inference": Table(
        make=_by_place,
        records="gpu_timings",
        where={
            "settings.work": "inference",
            "settings.size": "base",
            "settings.device": "cuda",
            "settings.competitor": tuple(TIMED),
        },
        row=("settings.competitor", "settings.length", "settings.batch"),
        one_machine=True,
    ),
}
