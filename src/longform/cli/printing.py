"""Summaries and tables as commands print them."""

from collections.abc import Mapping, Sequence
from typing import Any

from longform.runs.summary import summary, table


def print_summary(result: Any) -> None:
    """The fields of a dataclass, one a line."""
    print(summary(result))


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows that share their keys, which are the heads of the columns."""
    print(table(title, rows))
