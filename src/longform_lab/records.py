"""The benchmark record: what was measured, with what settings, on what machine, with what code.

One record is one JSON line in ``benchmarks/records/<name>.jsonl`` of the checkout (``RECORDS``). Files of records are
appended to and never edited; a newer record with the same settings replaces an older one in tables only.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from longform.errors import DataError
from longform.files import write_text
from longform_text.facts import commit, hardware, now, versions

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "records"

Value = float | int | str | bool | list[float] | list[list[float]] | None


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement.

    Args:
        name: what was measured; the file and, by default, the table that shows it.
        metrics: results by name; None where a result does not exist. NaN and infinity are refused.
        settings: all that was chosen; equal settings mean the same experiment.
        units: unit by metric, for those that have one.
        hardware, versions, commit, date: filled in from the machine (date is UTC, ISO 8601).
    """

    name: str
    metrics: Mapping[str, Value]
    settings: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=hardware)
    versions: Mapping[str, str] = field(default_factory=versions)
    commit: str = field(default_factory=commit)
    date: str = field(default_factory=now)

    def __post_init__(self) -> None:
        broken = [key for key, value in self.metrics.items() if isinstance(value, float) and not math.isfinite(value)]
        if broken:
            raise ValueError(f"record {self.name!r}: metrics must be finite or None, got {broken}")
        unknown = self.units.keys() - self.metrics.keys()
        if unknown:
            raise ValueError(f"record {self.name!r}: units for metrics that do not exist: {sorted(unknown)}")

    def to_line(self) -> str:
        """The record as one line of JSON, without the line end."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


def append_records(path: str | Path, records: Iterable[Record]) -> None:
    """Append lines in a single write, so that two processes cannot mix theirs; creates the file and its folder.

    Raises OSError where they do not all fit on the disk; the file then is as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = rest = "".join(record.to_line() + "\n" for record in records).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError as error:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - (len(lines) - len(rest)))
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write a file of these records alone, whole or not at all."""
    write_text(path, "".join(f"{record.to_line()}\n" for record in records))


def append_record(path: str | Path, record: Record) -> None:
    """Append one record."""
    append_records(path, [record])


def read_records(paths: Iterable[str | Path]) -> list[Record]:
    """Records of the files, in file order.

    Raises:
        DataError: a line that is not a record, with file and line number.
    """
    records = []
    for path in map(Path, paths):
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            if not line.strip():
                continue
            try:
                records.append(Record(**json.loads(line)))
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                raise DataError(f"{path.name}, line {number}: not a benchmark record ({error})") from error
    return records


def provenance(rows: Sequence[Mapping[str, Any]], *, brief: bool = False) -> str:
    """One line under a table: on what machines and when; unless ``brief``, from what code."""

    def machine(row: Mapping[str, Any]) -> str:
        hardware = row["hardware"]
        cores = f"{hardware['cores']} core{'s' * (hardware['cores'] > 1)}"
        return f"{hardware['gpu'] or hardware['cpu']} ({', '.join([cores, *hardware['cpu_features'][-1:]])})"

    machines, days = [*dict.fromkeys(map(machine, rows))], sorted(row["date"][:10] for row in rows)
    named = " and ".join(filter(None, (", ".join(machines[:-1]), machines[-1])))
    said = f"Measured on {named}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
    commits = list(dict.fromkeys(row["commit"] for row in rows))
    return f"{said}." if brief else f"{said}, commit{'s' * (len(commits) > 1)} {', '.join(commits)}."
