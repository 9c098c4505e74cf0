"""The table of long classification with frozen encoders: each way to read, beside chunks."""

from longform_lab.tables.table_kinds import Cells, Row, Rows, Table, pivot


def beside_chunks(rows: Rows) -> Cells:
    """Accuracy, and what it is above chunks by with a 95 % interval: a row a reading, a column a pooling."""

    def cell(row: Row) -> str:
        metrics = row["metrics"]
        above = f", {metrics['above_chunks']:+.1%} ± {metrics['above_chunks_interval']:.1%}"
        return f"{metrics['accuracy']:.1%}{above}".replace("%", "")

    poolings = list(dict.fromkeys(row["settings"]["pooling"] for row in rows))
    lines = pivot(
        rows,
        down=lambda row: (row["settings"]["data"], row["settings"]["reading"]),
        across=lambda row: row["settings"]["pooling"],
        cell=cell,
        columns=poolings,
    )
    return ["data", "read by", *poolings], [[*line, *cells] for line, cells in lines]


CLASSIFICATION_TABLES = {
    "long_classification": Table(
        make=beside_chunks,
        records="long_classification",
        where={"settings.pooling": ("mean", "sqrt")},
        row=("settings.data", "settings.reading", "settings.pooling"),
    ),
}
