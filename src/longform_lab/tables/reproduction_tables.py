"""The tables of docs/lab/reproduction.md."""

from collections.abc import Callable, Mapping
from typing import Any

from longform_lab.paper import table2_report
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
    for name, group in _groups(rows, origin).items():
        columns, cells = table2_report.accuracy_table(group)
        body += [{"original": name, **dict(zip(columns, line, strict=True))} for line in cells]
    heads = ["original", "model", *tasks, *AFTER_TASKS]
    return heads, [[line.get(head, "–") for head in heads] for line in body]


def of_this_version(rows: Rows) -> Rows:
    """Rows but for pure Linformers of the version that kept slots which a text hardly meets."""
    return [row for row in rows if "fit_length" in row["settings"] or not row["settings"]["model"].startswith("linear")]


REPRODUCTION_TABLES = {
    "table2": Table(make=finetunings, records="finetuned", select=of_this_version),
}
