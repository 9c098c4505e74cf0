"""Write the tables of README.md and docs/ from benchmarks/records, or check that they are current.

::

    python -m longform_lab.tables.write          # write
    python -m longform_lab.tables.write --check  # exit 1 and name the documents that differ

The line under a table names hardware and dates; the records have the commits.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from statistics import mode
from typing import Any

from longform_lab.records import RECORDS, ROOT, Record, provenance, read_records
from longform_lab.tables.table_definitions import TABLES
from longform_lab.tables.table_kinds import Table, look_up

MARKED = re.compile(r"(<!-- table:(?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- /table -->)", re.DOTALL)
OPENED = re.compile(r"<!-- table:[\w-]+ -->")


def chosen_rows(definition: Table, records: Sequence[Record]) -> list[dict[str, Any]]:
    """The records of a table as dicts: filtered, the preferred and latest of each kind, sorted."""
    wanted = (definition.records,) if isinstance(definition.records, str) else definition.records
    there = [dict(vars(record)) for record in records if record.name in wanted]
    ranked = _ranked([row for row in there if belongs(row, definition)], definition)
    chosen = list({key_of(row, definition): row for row in ranked}.values())
    if definition.one_machine and chosen:
        chosen = _of_usual_machine(chosen)
    if definition.order:
        chosen = _sorted(chosen, definition.order)
    return list(map(dict, definition.select(chosen)))


def _sorted(rows: Sequence[dict[str, Any]], order: Sequence[str]) -> list[dict[str, Any]]:
    """Rows by the values at the paths of ``order``; None comes last."""

    def key(row: Mapping[str, Any]) -> list[tuple[bool, Any]]:
        return [(value is None, value) for value in (look_up(row, path) for path in order)]

    return sorted(rows, key=key)


def _ranked(rows: Sequence[dict[str, Any]], definition: Table) -> list[dict[str, Any]]:
    """Rows by date, preferred ones and those of the fullest runs last."""
    fullest = fullest_runs(rows, definition) if definition.one_run else set()

    def rank(row: Mapping[str, Any]) -> tuple[bool, list[bool], str]:
        preferred = [look_up(row, path) is not None for path in definition.prefer]
        return run_of(row, definition.one_run) in fullest, preferred, row["date"]

    return sorted(rows, key=rank)


def _of_usual_machine(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    machines = [str([row["hardware"][part] for part in ("cpu", "gpu", "threads")]) for row in rows]
    usual = mode(machines)
    return [row for row, machine in zip(rows, machines, strict=True) if machine == usual]


def key_of(row: Mapping[str, Any], definition: Table) -> str:
    """Key that tells records apart: of two with the same, one is shown."""
    kind = [look_up(row, path) for path in definition.row] if definition.row else row["settings"]
    return json.dumps(kind, sort_keys=True)


def run_of(row: Mapping[str, Any], paths: Sequence[str]) -> tuple[str, ...]:
    """The row of the table at ``paths``, and the run: its rows have one commit and one date."""
    return (*(str(look_up(row, path)) for path in paths), row["commit"], row["date"])


def fullest_runs(rows: Sequence[Mapping[str, Any]], definition: Table) -> set[tuple[str, ...]]:
    """For each row of the table the run that ``Table.one_run`` takes."""
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


def belongs(record: Mapping[str, Any], definition: Table) -> bool:
    """Whether a record has the values, and all else, that a table asks for."""
    for path, wanted in definition.where.items():
        if not _matches(look_up(record, path), wanted):
            return False
    there = [look_up(record, path) is not None for path in definition.having]
    some = definition.having_any
    return all(there) and (not some or any(look_up(record, path) is not None for path in some))


def _matches(value: Any, wanted: Any) -> bool:
    if callable(wanted):
        return wanted(value)
    if isinstance(value, list):
        return wanted in value
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def render_table(name: str, records: Sequence[Record]) -> str:
    """The Markdown of a table, from its definition and the records.

    Raises:
        ValueError: no table has this name.
    """
    if name not in TABLES:
        raise ValueError(f"no table {name!r} in table_definitions.py; it has {', '.join(sorted(TABLES))}")
    definition = TABLES[name]
    rows = chosen_rows(definition, records)
    header, body = definition.make(rows) if rows else ([], [])
    if not body:
        return "*Not measured yet.*\n"
    if not header:
        return "\n\n".join(line for (line,) in body) + f"\n\n*{provenance(rows, brief=True)}*\n"
    lines = [f"| {' | '.join(line)} |" for line in (header, *body)]
    lines.insert(1, f"|{'---|' * len(header)}")
    table = "\n".join(lines)
    return f"{table}\n\n*{provenance(rows, brief=True)}*\n"


def fill_document(text: str, records: Sequence[Record]) -> str:
    """The document with every marked table written anew.

    Raises:
        ValueError: an unknown table, or one that is opened and not closed.
    """
    filled = MARKED.sub(lambda match: match[1] + render_table(match["name"], records) + match[4], text)
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
        filled = fill_document(text, records)
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
