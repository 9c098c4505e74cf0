"""The tables of docs/lab/reproduction.md."""

from collections.abc import Callable, Mapping
from typing import Any

from longform_lab.paper import table2_report
from longform_lab.paper.table2 import SCALES
from longform_lab.paper.table2_report import AFTER_TASKS
from longform_lab.tables.table_kinds import Cells, Rows, Table

USUAL = SCALES["small"].amounts  # how long the texts of a task are
HEALED = "healed on, tokens"


def _groups(rows: Rows, key: Callable[[Mapping[str, Any]], str]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def finetunings(rows: Rows) -> Cells:
    """Table 2, models of one healing together; their original is the bundled encoder."""

    def healing(row: Mapping[str, Any]) -> str:
        settings = row["settings"]
        usual = settings["max_length"] == USUAL[settings["task"]].max_length
        cut = "" if usual else f", cut at {settings['max_length']} tokens"
        cut += ", E and F resized to the task" if settings.get("fit_length") else ""
        return f"{settings['healing_tokens']:,}{cut}"

    tasks = dict.fromkeys(row["settings"]["task"] for row in rows)
    body: list[dict[str, str]] = []
    for name, group in _groups(rows, healing).items():
        columns, cells = table2_report.accuracy_table(group)
        body += [{HEALED: name, **dict(zip(columns, line, strict=True))} for line in cells]
    heads = [HEALED, "model", *tasks, *AFTER_TASKS]
    return heads, [[line.get(head, "–") for head in heads] for line in body]


def of_this_version(rows: Rows) -> Rows:
    """Rows but for pure Linformers of the version that kept slots which a text hardly meets."""
    return [row for row in rows if "fit_length" in row["settings"] or not row["settings"]["model"].startswith("linear")]


REPRODUCTION_TABLES = {
    "table2": Table(
        make=finetunings, records="finetuned", where={"settings.original": "bundled"}, select=of_this_version
    ),
}
