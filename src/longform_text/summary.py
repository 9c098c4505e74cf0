"""Summaries and tables of results as text, as commands print them and ``result.report`` has them."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from longform.errors import require, some

FILE_WIDTH = 160  # characters of a table that goes to a file or a pipe


def summary(result: Any) -> str:
    """The fields of a dataclass that its repr shows, one a line, without those that are None, 0 or an empty list."""
    shown = {field.name: getattr(result, field.name) for field in dataclasses.fields(result) if field.repr}
    lines = []
    for name, value in shown.items():
        if value is None or (type(value) is int and value == 0) or value == []:
            continue
        text = f"{value:,.1f}" if name == "seconds" else some(value) if type(value) is list else format_value(value)
        lines.append(f"{name.replace('_', ' '):<20} {text}")
    return "\n".join(lines)


def table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows that share their keys, which are the heads of the columns; as wide as the terminal that there is."""
    made = require("rich.table", extra="cli").Table()
    for name, value in rows[0].items():
        made.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        made.add_row(*map(format_value, row.values()))
    width = None if sys.stdout.isatty() else FILE_WIDTH
    console = require("rich.console", extra="cli").Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(made)
    return f"{title}\n{captured.get().rstrip()}"


def format_value(value: Any) -> str:
    """Numbers as people read them: 1,234,567 and 0.1235."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4f}"
