"""The grid: cells one after another, a record a row, resumable; nothing that a competitor does ends the run."""

import datetime
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tqdm import tqdm

from longform.errors import CheckpointError, DataError
from longform.files import RunFile, clear_leftovers, entries
from longform_lab.records import Record, append_records, read_records
from longform_lab.speed.cells import CellRun, Effort, said
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.shapes import Cell
from longform_text.facts import commit

IDENTITY, RECORDS = "benchmark.json", "records.jsonl"
LOG = "children.log"
PASSING = ("not installed", "out of memory", "torch.compile needs")  # reasons begin so that may not hold next time
TOO_LONG = ("a pass takes", "stopped after")  # those that may not hold when more time is allowed


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

    A row that is there is not measured again, and ``tell`` is told from what commit it is; one that says why it is
    missing is, where a package, a compiler or memory was, or where now there is more time. ``also``: another file that
    gets each new record.
    Raises CheckpointError where the records cannot be read.
    """
    commit()  # of the code that runs, whatever is checked out by the end
    path = output / RECORDS
    targets = list(filter(None, (path, also)))
    for target in targets[1:]:  # an error now is better than one after the first cell
        append_records(target, [])
    there = {key_of(record.settings): record for record in _records_in(output)}
    wanted = [key_of(cell.settings(name)) for cell, name in product(cells, competitors)]
    kept = _kept(wanted, there, effort, tell)
    with tqdm(total=len(cells) * len(competitors), unit="row", desc="benchmark") as bar:
        for cell in cells:
            lacking = [name for name in competitors if key_of(cell.settings(name)) not in kept]
            bar.update(len(competitors) - len(lacking))
            if not lacking:
                continue
            tell(str(cell))
            rows = CellRun(cell, competitors, effort, output / LOG).rows(lacking)
            for target in targets:
                append_records(target, rows)
            for row in rows:
                there[key_of(row.settings)] = row
            tell("\n".join(f"  {line}" for line in said(rows)))
            bar.update(len(lacking))
    return list(map(there.__getitem__, filter({*wanted}.__contains__, there)))


def open_grid(output: Path) -> None:
    """Begin a benchmark in ``output``, or go on with one, that of an earlier version included, which has records alone.

    Raises ConfigurationError where the folder holds something else, CheckpointError where its records cannot be read.
    """
    begun = [] if _records_in(output) else entries(output, but=(IDENTITY,))
    RunFile(output / IDENTITY, output, "benchmark").open({"kind": "benchmark"}, begun=begun)
    clear_leftovers(output)


def _records_in(output: Path) -> list[Record]:
    path = output / RECORDS
    try:
        return read_records([path]) if path.exists() else []
    except DataError as error:
        way_out = "remove the line, or give another --output"
        raise CheckpointError(f'"{path}" is damaged ({error}): {way_out}') from error


def worth_another_try(record: Record, effort: Effort) -> bool:
    """Whether a row has no time for a reason that may have passed: a package, a compiler, memory, or less time."""
    reason, allowed = str(record.metrics["missing"]), record.metrics.get("cell_seconds")
    more_time = isinstance(allowed, float) and effort.cell_seconds > allowed  # older rows do not say it
    return reason.startswith(PASSING) or (more_time and reason.startswith(TOO_LONG))


def set_aside(output: Path) -> Path | None:
    """Give the records in ``output`` another name, so that all is measured again; returns it, None without records."""
    path = output / RECORDS
    if not path.exists():
        return None
    now = datetime.datetime.now(datetime.UTC)
    return path.rename(path.with_name(f"{path.stem}-until-{now:%Y%m%dT%H%M%S%f}.jsonl"))


def key_of(settings: Mapping[str, Any]) -> str:
    """Key that tells rows apart."""
    return json.dumps(settings, sort_keys=True)


def _kept(wanted: Sequence[Any], there: Mapping[Any, Record], effort: Effort, tell: Callable[[str], None]) -> set[Any]:
    """Keys of rows that are not measured again; ``tell`` is told from what commits they are."""
    kept = {key for key in wanted if key in there and not worth_another_try(there[key], effort)}
    for earlier, count in Counter(there[key].commit for key in wanted if key in kept).items():
        tell(f"{count} rows kept from commit {earlier}")
    return kept
