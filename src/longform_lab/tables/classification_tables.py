"""The table of long classification: each model over several splits, and how much better Longform is, split by split."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from longform_lab.tables.table_kinds import Cells, Row, Rows, Table, pivot

MODELS = ("Longform", "original")
METRICS = ("accuracy", "macro_f1")
EARLIER_RATE = 3e-5  # of the records that do not say it
HEADS = [
    *("data", "pooling", "rate", "splits"),
    *("accuracy, %, Longform / original", "Longform is better by", "macro-F1, %, Longform / original", "by"),
]


def _by_kind(rows: Rows) -> dict[tuple[str, str, str], dict[str, dict[int, Any]]]:
    """Rows by data, pooling and learning rate, then by model, then by split."""
    found: dict[tuple[str, str, str], dict[str, dict[int, Any]]] = {}
    for row in rows:
        settings = row["settings"]
        kind = settings["data"], settings["pooling"], f"{settings.get('learning_rate', EARLIER_RATE):g}"
        found.setdefault(kind, {}).setdefault(settings["model"], {})[settings["split"]] = row
    return found


def over_splits(rows: Rows) -> Cells:
    """A line a data set, pooling and rate: mean ± standard deviation of each model, and of the difference by split."""
    body = []
    for kind, models in _by_kind(rows).items():
        common = sorted(set.intersection(*(set(models.get(name, {})) for name in MODELS)))
        if not common:
            continue
        cells = []
        for metric in METRICS:
            long, short = ([100 * models[name][split]["metrics"][metric] for split in common] for name in MODELS)
            gains = [ours - theirs for ours, theirs in zip(long, short, strict=True)]
            cells += [f"{spread(long)} / {spread(short)}", spread(gains, "+")]
        body.append([*kind, str(len(common)), *cells])
    return HEADS, body


def spread(values: Sequence[float], sign: str = "") -> str:
    """Mean and sample standard deviation; no minus before a zero."""
    mean = f"{fmean(values):{sign}z.1f}"
    return f"{mean} ± {stdev(values):.1f}" if len(values) > 1 else mean


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
    "classification": Table(
        make=over_splits,
        records="classification",
        having=("settings.split",),
        row=("settings.data", "settings.pooling", "settings.learning_rate", "settings.model", "settings.split"),
        order=("settings.data",),
    ),
}
