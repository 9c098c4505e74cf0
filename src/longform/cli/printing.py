"""Summaries and tables as commands print them."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from longform.runs.summary import summary, table


def print_summary(result: Any, file: Any = None) -> None:
    """The fields of a dataclass, one a line."""
    print(summary(result), file=file)


def print_next(said: str, file: Any = None) -> None:
    """The last line of a command: what one would do next."""
    print(f"next  {said}", file=file)


def command(*words: Any) -> str:
    """A line of ``longform`` as it is typed, with quotes where a name needs them."""
    return shlex.join(map(str, ("longform", *words)))


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows that share their keys, which are the heads of the columns."""
    print(table(title, rows))
