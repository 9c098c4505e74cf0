"""The tables of docs/lab/reproduction.md."""

from collections.abc import Callable, Mapping
from typing import Any

from longform_lab.paper import figure3_report, table1, table2_report
from longform_lab.paper.table2 import SCALES
from longform_lab.paper.table2_report import AFTER_TASKS
from longform_lab.tables.table_kinds import Cells, Rows, Table

USUAL = SCALES["small"].amounts  # how long the texts of a task are
TITLES = {"bundled": "all-MiniLM-L6-v2"}  # of originals


def _groups(rows: Rows, key: Callable[[Mapping[str, Any]], str]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def trainings(rows: Rows) -> Cells:
    """Figure 3's final values, models of one size and budget together."""

    def size(row: Mapping[str, Any]) -> str:
        settings = row["settings"]
        return (
            f"{settings['num_hidden_layers']} x {settings['hidden_size']}, {row['metrics']['steps']:,} steps of "
            f"{settings['tokens_per_step']:,} tokens"
        )

    body = [
        [name, *cells] for name, group in _groups(rows, size).items() for cells in figure3_report.final_values(group)
    ]
    return ["layers x width, budget", *figure3_report.HEADS], body


def finetunings(rows: Rows) -> Cells:
    """Table 2, models of one original and healing together."""

    def origin(row: Mapping[str, Any]) -> str:
        healed = row["settings"]["healing_tokens"]
        name = row["settings"]["original"]
        usual = row["settings"]["max_length"] == USUAL[row["settings"]["task"]].max_length
        cut = "" if usual else f", cut at {row['settings']['max_length']} tokens"
        cut += ", E and F resized to the task" if row["settings"].get("fit_length") else ""
        return f"{TITLES.get(name, name)}, {f'healed on {healed:,} tokens' if healed else 'not healed'}{cut}"

    tasks = dict.fromkeys(row["settings"]["task"] for row in rows)
    body: list[dict[str, str]] = []
    for name, group in _groups(list(map(_dated, rows)), origin).items():
        columns, cells = table2_report.accuracy_table(group)
        body += [{"original": name, **dict(zip(columns, line, strict=True))} for line in cells]
    heads = ["original", "model", *tasks, *AFTER_TASKS]
    return heads, [[line.get(head, "–") for head in heads] for line in body]


def _dated(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row; a pure Linformer of the version that kept slots which a text hardly meets says so in its label."""
    settings = row["settings"]
    if "fit_length" in settings or not settings["model"].startswith("linear"):
        return row
    return {**row, "settings": {**settings, "label": f"{settings['label']} (an older version)"}}


def growth(rows: Rows) -> Cells:
    """Table 1's exponents."""
    return table1.HEADS, table1.growth_rows(rows)


REPRODUCTION_TABLES = {
    "figure3": Table(
        make=trainings, records="pretraining", order=("settings.num_hidden_layers", "settings.n", "settings.k")
    ),
    "table1": Table(make=growth, records="growth", row=("settings.architecture", "settings.size", "settings.device")),
    "table2": Table(make=finetunings, records="finetuned"),
}
