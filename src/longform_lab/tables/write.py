"""Write the tables of README.md and docs/ from benchmarks/records, or check that they are current.

::

    python -m longform_lab.tables.write          # write
    python -m longform_lab.tables.write --check  # exit 1 and name the documents that differ

In docs/lab the line under a table names the commits too; elsewhere hardware and dates alone.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mode
from typing import Any

from longform_lab.records import RECORDS, ROOT, Record, read_records
from longform_lab.tables.table_definitions import TABLES
from longform_lab.tables.table_kinds import Column, ComputedTable, TableDefinition

MISSING = "–"
MARKED = re.compile(r"(<!-- table:(?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- /table -->)", re.DOTALL)
LAB = "docs/lab"
OPENED = re.compile(r"<!-- table:[\w-]+ -->")


def look_up(record: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or None where there is none."""
    value: Any = record
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def cell(record: Mapping[str, Any], column: Column) -> str:
    """One value as the table shows it; a dash where the record does not have it."""
    value = look_up(record, column.value)
    if value is None:
        return MISSING
    if isinstance(value, str) or not column.form:
        return str(value).replace("|", "\\|")
    return format(value, column.form)


def chosen_rows(
    name: str, definition: TableDefinition | ComputedTable, records: Sequence[Record]
) -> list[dict[str, Any]]:
    """The records of a table as dicts: filtered, the preferred and latest of each kind, sorted."""
    there = _rows_of(name, definition, records)
    computed = definition if isinstance(definition, ComputedTable) else None
    chosen = list({key_of(row, definition): row for row in _ranked(there, computed)}.values())
    if computed and computed.one_machine and chosen:
        chosen = _of_usual_machine(chosen)
    if definition.order:
        chosen = _sorted(chosen, definition.order)
    return list(map(dict, computed.select(chosen))) if computed else chosen


def _rows_of(name: str, definition: TableDefinition | ComputedTable, records: Sequence[Record]) -> list[dict[str, Any]]:
    named = definition.records or name
    wanted = (named,) if isinstance(named, str) else named
    there = [asdict(record) for record in records if record.name in wanted]
    return [row for row in there if belongs(row, definition)]


def _sorted(rows: Sequence[dict[str, Any]], order: Sequence[str]) -> list[dict[str, Any]]:
    """Rows by the values at the paths of ``order``; None comes last."""

    def key(row: Mapping[str, Any]) -> list[tuple[bool, Any]]:
        return [(value is None, value) for value in (look_up(row, path) for path in order)]

    return sorted(rows, key=key)


def _ranked(rows: Sequence[dict[str, Any]], definition: ComputedTable | None) -> list[dict[str, Any]]:
    """Rows by date, preferred ones and those of the fullest runs last, as a ComputedTable has it."""
    if definition is None:
        return sorted(rows, key=lambda row: row["date"])
    fullest = fullest_runs(rows, definition) if definition.one_run else set()

    def rank(row: Mapping[str, Any]) -> tuple[bool, list[bool], str]:
        preferred = [look_up(row, path) is not None for path in definition.prefer]
        return run_of(row, definition.one_run) in fullest, preferred, row["date"]

    return sorted(rows, key=rank)


def _of_usual_machine(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    machines = [str([row["hardware"][part] for part in ("cpu", "gpu", "threads")]) for row in rows]
    usual = mode(machines)
    return [row for row, machine in zip(rows, machines, strict=True) if machine == usual]


def key_of(row: Mapping[str, Any], definition: TableDefinition | ComputedTable) -> str:
    """Key that tells records apart: of two with the same, one is shown."""
    kind = [look_up(row, path) for path in definition.row] if definition.row else row["settings"]
    return json.dumps(kind, sort_keys=True)


def run_of(row: Mapping[str, Any], paths: Sequence[str]) -> tuple[str, ...]:
    """The row of the table at ``paths``, and the run: its rows have one commit and one date."""
    return (*(str(look_up(row, path)) for path in paths), row["commit"], row["date"])


def fullest_runs(rows: Sequence[Mapping[str, Any]], definition: ComputedTable) -> set[tuple[str, ...]]:
    """For each row of the table the run that ``ComputedTable.one_run`` takes."""
    runs: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        runs.setdefault(run_of(row, definition.one_run), []).append(row)

    def rank(run: tuple[str, ...]) -> tuple[int, list[bool], str]:
        own = runs[run]
        preferred = [any(look_up(row, path) is not None for row in own) for path in definition.prefer]
        return len({key_of(row, definition) for row in own}), preferred, max(row["date"] for row in own)

    best: dict[tuple[str, ...], tuple[str, ...]] = {}
    for run in sorted(runs, key=rank):
        best[run[:-2]] = run
    return set(best.values())


def belongs(record: Mapping[str, Any], definition: TableDefinition | ComputedTable) -> bool:
    """Whether a record has the values, and all else, that a table asks for."""
    for path, wanted in definition.where.items():
        value = look_up(record, path)
        if not (wanted(value) if callable(wanted) else value in (wanted if isinstance(wanted, tuple) else (wanted,))):
            return False
    there = [look_up(record, path) is not None for path in definition.having]
    some = definition.having_any if isinstance(definition, ComputedTable) else ()
    return all(there) and (not some or any(look_up(record, path) is not None for path in some))


def provenance(rows: Sequence[Mapping[str, Any]], *, brief: bool = False) -> str:
    """One line under the table: on what machines and when; unless ``brief``, with what versions and from what code."""

    def machine(row: Mapping[str, Any]) -> str:
        hardware = row["hardware"]
        parts = [
            hardware["gpu"] or hardware["cpu"],
            f"{hardware['cores']} core{'s' * (hardware['cores'] > 1)}",
            *hardware["cpu_features"][-1:],
        ]
        return ", ".join(map(str, parts))

    def software(row: Mapping[str, Any]) -> str:
        return f"torch {row['versions']['torch']}, transformers {row['versions']['transformers']}"

    def commit_and_day(row: Mapping[str, Any]) -> str:
        return f"{row['commit']} of {row['date'][:10]}"

    if brief:
        machines, days = dict.fromkeys(map(machine, rows)), sorted(row["date"][:10] for row in rows)
        return f"*Measured on {'; '.join(machines)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}.*"
    facts = ("; ".join(dict.fromkeys(map(say, rows))) for say in (machine, software, commit_and_day))
    return f"*Measured on {'. '.join(facts)}.*"


def render_table(name: str, records: Sequence[Record], *, brief: bool = False) -> str:
    """The Markdown of a table, from its definition and the records.

    Raises:
        ValueError: no table has this name.
    """
    if name not in TABLES:
        raise ValueError(f"no table {name!r} in table_definitions.py; it has {', '.join(sorted(TABLES))}")
    definition = TABLES[name]
    rows = chosen_rows(name, definition, records)
    if not rows:
        return "*Not measured yet.*\n"
    if isinstance(definition, ComputedTable):
        header, body = definition.make(rows)
    else:
        header = [column.header for column in definition.columns]
        body = [[cell(row, column) for column in definition.columns] for row in rows]
    if not body:
        return "*Not measured yet.*\n"
    if not header:
        return "\n\n".join(line for (line,) in body) + f"\n\n{provenance(rows, brief=brief)}\n"
    table = "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *body))
    return f"{table}\n\n{provenance(rows, brief=brief)}\n"


def fill_document(text: str, records: Sequence[Record], *, brief: bool = False) -> str:
    """The document with every marked table written anew; ``brief``: without the commits.

    Raises:
        ValueError: an unknown table, or one that is opened and not closed.
    """
    filled = MARKED.sub(lambda match: match[1] + render_table(match["name"], records, brief=brief) + match[4], text)
    if len(OPENED.findall(text)) != len(MARKED.findall(text)):
        raise ValueError(
            "a table is opened with <!-- table:NAME --> and not closed with <!-- /table --> on its own line"
        )
    return filled


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the documents, or with --check compare them; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m longform_lab.tables.write", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a document differs")
    check = parser.parse_args(arguments).check
    records = read_records(sorted(RECORDS.glob("*.jsonl")))
    stale = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = document.read_text()
        filled = fill_document(text, records, brief=not document.is_relative_to(ROOT / LAB))
        if filled == text:
            continue
        stale.append(str(document.relative_to(ROOT)))
        if not check:
            temporary = document.with_suffix(".tmp")
            temporary.write_text(filled)
            os.replace(temporary, document)
    if stale:
        print(f"{'differs from the records, run `make tables`' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
