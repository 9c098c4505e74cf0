"""Generated tables: which records become their rows, and how these become cells; columns.toml has the plain ones."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

MISSING = "–"
Row = Mapping[str, Any]  # a record as a dict
Rows = Sequence[Row]
Cells = tuple[list[str], list[list[str]]]  # heads of the columns, and rows


class Column(NamedTuple):
    """One column.

    ``header``: what stands above it, with the unit. ``value``: where it is in a record ("settings.x", "metrics.y",
    "hardware.cpu", "commit"), or a function of the record. ``form``: a format specification such as ".3f" or ",d".
    """

    header: str
    value: str | Callable[[Row], Any]
    form: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    Args:
        make: chosen records (as dicts) -> the heads of the columns, and rows of cells; without heads, rows of one cell
            are paragraphs and not a table.
        records: their name, or several names.
        where: values that a record must have; a tuple: one of them; a function: whatever it is true of; of a list in
            the record: an element.
        having: what it must have, whatever its value; ``having_any``: of these one or more.
        row: what tells records apart; of those that agree in it, the latest is taken. Empty: all settings.
        prefer: of those that agree in it, one that has the first of these is taken before any that has not, then one
            that has the second, and so on; the latest of these.
        one_run: what tells rows of the table apart, each of whose cells should come from one run (records of one
            commit and one date): that with the most cells, then the preferred, then the latest.
            Cells that it lacks are of other runs, chosen as without it.
        select: chosen records -> those that ``make`` shows; the line under the table is about them.
        order: by what records are sorted, ascending; empty: as first measured.
        one_machine: only those of the processor, GPU and threads that most have: others' seconds do not compare.
    """

    make: Callable[[Rows], Cells]
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


def look_up(record: Row, path: str) -> Any:
    """The value at a dotted path, or None where there is none."""
    value: Any = record
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def cell(record: Row, column: Column) -> str:
    """One value as the table shows it; a dash where the record does not have it."""
    value = column.value(record) if callable(column.value) else look_up(record, column.value)
    if value is None:
        return MISSING
    if isinstance(value, str) or not column.form:
        return str(value).replace("|", "\\|")
    return format(value, column.form)


def by_columns(rows: Rows, *, columns: Sequence[Column]) -> Cells:
    """A row a record, cells as ``columns`` say."""
    return [column.header for column in columns], [[cell(row, column) for column in columns] for row in rows]


def pivot(
    rows: Rows,
    *,
    down: Callable[[Row], Any],
    across: Callable[[Row], Any],
    cell: Callable[[Row], str],
    columns: Sequence[Any],
) -> list[tuple[Any, list[str]]]:
    """Cells of ``rows``: a line for each value of ``down``, sorted, with a cell for each of ``columns``."""
    cells = {(down(row), across(row)): cell(row) for row in rows}
    lines = sorted({place for place, _ in cells})
    return [(line, [cells.get((line, column), MISSING) for column in columns]) for line in lines]


def plain_tables() -> dict[str, Table]:
    """The tables of columns.toml, whose columns are parts of records; their records are of the same name."""
    found = {}
    for name, given in tomllib.loads((Path(__file__).with_name("columns.toml")).read_text(encoding="utf-8")).items():
        columns = [Column(*each) for each in given.pop("columns")]
        chosen: dict[str, Any] = {"records": name, **given}
        chosen |= {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        chosen["where"] = {
            path: tuple(value) if isinstance(value, list) else value for path, value in given.get("where", {}).items()
        }
        found[name] = Table(make=partial(by_columns, columns=columns), **chosen)
    return found
