"""The grid: cells one after another, a record a row, resumable; nothing that a competitor does ends the run."""

import datetime
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tqdm import tqdm

from longform.data.storage import clear_leftovers
from longform.errors import CheckpointError, DataError
from longform.runs.facts import commit
from longform.runs.folder import RunFile
from longform.runs.output import entries
from longform_lab.records import Record, append_records, read_records
from longform_lab.speed.cell_run import CellRun, Effort
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.rows import say
from longform_lab.speed.shapes import Cell

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

    A row that is there is not measured again, and ``tell`` is told from what commit it is, unless ``effort`` asks for
    more rounds, for memory or for a floor that were not asked for; nor is one that says why it is missing, unless a
    package, a compiler or memory was, or, as for one with fewer rounds than asked, now there is more time. ``also``:
    another file that gets each new record.
    Raises CheckpointError where the records cannot be read.
    """
    commit()  # of the code that runs, whatever is checked out by the end
    path = output / RECORDS
    records = _records_in(output)
    targets = list(filter(None, (path, also)))
    for target in targets[1:]:  # an error now is better than one after the first cell
        append_records(target, [])
    there = {key_of(record.settings): record for record in records}
    wanted = [key_of(cell.settings(name)) for cell, name in product(cells, competitors)]
    kept = _kept(wanted, there, effort, competitors, tell)
    with tqdm(total=len(cells) * len(competitors), unit="row", desc="benchmark") as bar:
        for cell in cells:
            lacking = [name for name in competitors if key_of(cell.settings(name)) not in kept]
            bar.update(len(competitors) - len(lacking))
            if not lacking:
                continue
            tell(str(cell))
            rows = CellRun(cell, competitors, effort, output / LOG, bar.set_postfix_str).rows(lacking, records)
            for target in targets:
                append_records(target, rows)
            records += rows
            for row in rows:
                there[key_of(row.settings)] = row
                tell(f"  {say(row)}")
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


def worth_another_try(record: Record, effort: Effort, competitors: Mapping[str, Competitor]) -> bool:
    """Whether a row has no time for a reason that may have passed, or less was asked of it than is now."""
    reason = str(record.metrics["missing"])
    asked = effort.asked(competitors[record.settings["competitor"]].family)
    had = {name: record.metrics.get(name) for name in asked}  # older rows do not say
    more = {name for name, value in had.items() if isinstance(value, int | float) and asked[name] > value}
    if record.metrics["missing"] is None:
        done, wanted = record.metrics.get("repeats"), had["asked_repeats"]
        cut_short = isinstance(done, int) and isinstance(wanted, int) and done < wanted
        return bool(more if cut_short else more - {"cell_seconds"})
    return may_have_passed(record) or ("cell_seconds" in more and reason.startswith(TOO_LONG))


def may_have_passed(record: Record) -> bool:
    """Whether a row has no time for lack of a package, a compiler or memory."""
    return str(record.metrics["missing"]).startswith(PASSING)


def set_aside(output: Path, name: str = RECORDS) -> Path | None:
    """Give the records in ``output`` another name, so that all is measured again; returns it, None without records."""
    path = output / name
    if not path.exists():
        return None
    now = datetime.datetime.now(datetime.UTC)
    return path.rename(path.with_name(f"{path.stem}-until-{now:%Y%m%dT%H%M%S%f}.jsonl"))


def key_of(settings: Mapping[str, Any]) -> str:
    """Key that tells rows apart."""
    return json.dumps(settings, sort_keys=True)


def _kept(
    wanted: Sequence[Any],
    there: Mapping[Any, Record],
    effort: Effort,
    competitors: Mapping[str, Competitor],
    tell: Callable[[str], None],
) -> set[Any]:
    """Keys of rows that are not measured again; ``tell`` is told from what commits they are."""
    kept = {key for key in wanted if key in there and not worth_another_try(there[key], effort, competitors)}
    for earlier, count in Counter(there[key].commit for key in wanted if key in kept).items():
        tell(f"{count} rows kept from commit {earlier}")
    return kept
