"""The grid: cells one after another, a record a row, resumable; nothing that a competitor does ends the run."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from longform.benchmarking.cell_run import CellRun, Effort
from longform.benchmarking.competitor import Competitor
from longform.benchmarking.records import Record, append_records, read_records
from longform.benchmarking.rows import say
from longform.benchmarking.shapes import Cell
from longform.errors import CheckpointError

RECORDS = "records.jsonl"
LOG = "children.log"


def run_grid(
    cells: Sequence[Cell],
    competitors: Mapping[str, Competitor],
    effort: Effort,
    *,
    output: Path,
    also: Path | None = None,
    tell: Callable[[str], None] = tqdm.write,
) -> list[Record]:
    """Measure what the records in ``output`` lack, and return all records of these cells and competitors.

    A row that is there, also one that says why it is missing, is not measured again. ``also``: another file that gets
    each new record. Raises CheckpointError where the records cannot be read.
    """
    path = output / RECORDS
    records = _read(path)
    with tqdm(total=len(cells) * len(competitors), unit="row", desc="benchmark") as bar:
        for cell in cells:
            there = {key_of(record.settings) for record in records}
            lacking = [name for name in competitors if key_of(cell.settings(name)) not in there]
            bar.update(len(competitors) - len(lacking))
            if not lacking:
                continue
            tell(str(cell))
            rows = CellRun(cell, competitors, effort, output / LOG, bar.set_postfix_str).rows(lacking, records)
            for target in filter(None, (path, also)):
                append_records(target, rows)
            records += rows
            for row in rows:
                tell(f"  {say(row)}")
            bar.update(len(lacking))
    wanted = {key_of(cell.settings(name)) for cell in cells for name in competitors}
    return [record for record in records if key_of(record.settings) in wanted]


def key_of(settings: Mapping[str, Any]) -> str:
    """What tells rows apart."""
    return json.dumps(settings, sort_keys=True)


def _read(path: Path) -> list[Record]:
    try:
        return read_records([path]) if path.exists() else []
    except ValueError as error:
        raise CheckpointError(f'"{path}" is damaged: {error}; remove the line, or give another --output') from error
