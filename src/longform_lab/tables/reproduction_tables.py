"""The tables of docs/lab/reproduction.md."""

from collections.abc import Callable, Mapping
from typing import Any

from longform_lab.paper import table2_report
from longform_lab.paper.table2 import SCALES
from longform_lab.paper.table2_report import AFTER_TASKS
from longform_lab.tables.table_kinds import Cells, Rows, Table

USUAL = SCALES["small"].amounts  # how long the texts of a task are
HEALED = "healed on, tokens"
ORIGINAL = "original, full attention"


def _groups(rows: Rows, key: Callable[[Mapping[str, Any]], str]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def finetunings(rows: Rows) -> Cells:
    """Table 2, models of one healing together; their original is the bundled encoder."""

    def healing(row: Mapping[str, Any]) -> str:
        return f"{row['settings']['healing_tokens']:,}"

    tasks = dict.fromkeys(row["settings"]["task"] for row in rows)
    body: list[dict[str, str]] = []
    for name, group in _groups(rows, healing).items():
        columns, cells = table2_report.accuracy_table(group)
        shown = {line["model"] for line in body} & {ORIGINAL}  # it is the same beside each healing
        lines = [dict(zip(columns, line, strict=True)) for line in cells]
        body += [{HEALED: name, **line} for line in lines if line["model"] not in shown]
    heads = [HEALED, "model", *tasks, *AFTER_TASKS]
    return heads, [[line.get(head, "–") for head in heads] for line in body]


def of_this_version(rows: Rows) -> Rows:
    """Rows of the usual lengths, but for E and F that were resized to them and for pure Linformers of the version that
    kept slots which a text hardly meets.
    """

    def shown(settings: Mapping[str, Any]) -> bool:
        current = "fit_length" in settings or not settings["model"].startswith("linear")
        usual = settings["max_length"] == USUAL[settings["task"]].max_length
        return current and usual and not settings.get("fit_length")

    return [row for row in rows if shown(row["settings"])]


REPRODUCTION_TABLES = {
    "table2": Table(
        make=finetunings, records="finetuned", where={"settings.original": "bundled"}, select=of_this_version
    ),
}
