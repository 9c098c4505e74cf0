"""Summaries and tables as commands print them."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from longform.errors import require

FILE_WIDTH = 160  # characters of a table that goes to a file or a pipe


def print_summary(summary: Any, file: Any = None) -> None:
    """The fields of a dataclass, one a line."""
    for name, value in dataclasses.asdict(summary).items():
        print(f"{name.replace('_', ' '):<20} {format_value(value)}", file=file)


def print_next(said: str, file: Any = None) -> None:
    """The last line of a command: what one would do next."""
    print(f"next  {said}", file=file)


def command(*words: Any) -> str:
    """A line of ``longform`` as it is typed, with quotes where a name needs them."""
    return shlex.join(map(str, ("longform", *words)))


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows that share their keys, which are the heads of the columns."""
    table = require("rich.table", extra="cli").Table()
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*map(format_value, row.values()))
    print(title)
    console = require("rich.console", extra="cli").Console
    (console() if sys.stdout.isatty() else console(width=FILE_WIDTH)).print(table)


def format_value(value: Any) -> str:
    """Numbers as people read them: 1,234,567 and 0.1235."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4f}"
