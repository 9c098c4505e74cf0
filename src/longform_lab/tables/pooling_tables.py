"""The table of poolings: a line a weighting, a column a model."""

from collections.abc import Mapping

import numpy as np

from longform.evaluation.comparison import bootstrap
from longform_lab.tables.table_kinds import ComputedTable, Rows

PLAIN = ("all alike", "mean")


def poolings(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """nDCG@10 of each model, and its difference from the plain mean, paired by query."""
    values: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    models: list[str] = []
    for row in rows:
        settings: Mapping[str, str] = row["settings"]
        name = f"{settings['model']}, {settings['data']}"
        models += [] if name in models else [name]
        each = np.array(row["metrics"]["per_query"][0])
        values.setdefault((settings["tokens"], settings["repeated"]), {})[name] = each
    body = []
    for way, found in values.items():
        cells = []
        for name in models:
            more = "" if way == PLAIN else f", {bootstrap(found[name] - values[PLAIN][name]).signed}"
            cells.append(f"{found[name].mean():.1f}{more}")
        body.append([*way, *cells])
    return ["tokens", "repeated", *models], body


POOLING_TABLES = {
    "pooling": ComputedTable(
        make=poolings,
        records="pooling",
        row=("settings.data", "settings.model", "settings.tokens", "settings.repeated"),
        order=("settings.data",),
    )
}
