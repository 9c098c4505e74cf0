"""Kinds of generated tables: columns of records, or a shape computed from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Args:
        header: what stands above it, with the unit.
        value: where it is in a record: "settings.x", "metrics.y", "hardware.cpu", "versions.torch", "commit", "date".
        form: a format specification such as ".3f", ",d" or ".1%".
    """

    header: str
    value: str
    form: str = ""


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """One table: its columns, and which records become its rows.

    Args:
        columns: in order from the left.
        records: name of the records; the table's own when empty.
        where: values that a record must have, for instance {"settings.data": "sts-b dev"};
            a tuple: one of them; a function: whatever it is true of.
        having: what a record must have, whatever its value.
        row: what tells rows apart; of the records that agree in it, the latest is shown. Empty: all settings.
        order: by what rows are sorted, ascending; empty: as first measured.
    """

    columns: tuple[Column, ...]
    records: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    having: tuple[str, ...] = ()
    row: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComputedTable:
    """A table whose shape depends on the records.

    Args:
        make: chosen records (as dicts) -> the heads of the columns, and rows of cells; without heads, rows of one cell
            are paragraphs and not a table.
        records: their name, or several names.
        where: values that a record must have; a tuple: one of them; a function: whatever it is true of.
        having: what it must have, whatever its value; ``having_any``: of these one or more.
        row: what tells records apart; of those that agree in it, the latest is taken. Empty: all settings.
        prefer: of those that agree in it, one that has the first of these is taken before any that has not, then one
            that has the second, and so on; the latest of these.
        one_run: what tells rows of the table apart, each of whose cells should come from one run (records of one
            commit and one date): that with the most cells, then the preferred, then the latest.
            Cells that it lacks are of other runs, chosen as without it.
        select: chosen records -> those that ``make`` shows; the line under the table is about them.
        order: by what records are sorted, ascending.
        one_machine: only those of the processor, GPU and threads that most have: others' seconds do not compare.
    """

    make: Callable[[Rows], tuple[list[str], list[list[str]]]]
    records: str | tuple[str, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    having: tuple[str, ...] = ()
    having_any: tuple[str, ...] = ()
    row: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    one_run: tuple[str, ...] = ()
    select: Callable[[Rows], Rows] = lambda rows: rows
    order: tuple[str, ...] = ()
    one_machine: bool = False
