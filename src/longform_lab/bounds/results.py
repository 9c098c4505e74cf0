"""Results of ``longform bound``, and their parts as files of JSON lines: a part appears when it is complete."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from longform.runs.files import read_lines, reading, write_lines
from longform_lab.bounds.compression_error import ErrorRow
from longform_lab.bounds.monte_carlo import Cell
from longform_lab.bounds.theorems import Guarantee

RECORDS = "records.jsonl"
PROVED = ("row", "map", "all", "vector")  # events whose bound follows from the lemma; the others are as printed
ROUNDING = 1e-5  # of errors in float32: below it an error is that of the best
Row = TypeVar("Row", Cell, ErrorRow)


@dataclass(frozen=True)
class BoundResult:
    """``model`` and ``texts``: names, None where maps were random alone; ``errors`` is empty then."""

    model: str | None
    texts: str | None
    guarantees: list[Guarantee]
    cells: list[Cell]
    errors: list[ErrorRow]

    def judged(self, events: Iterable[str] = PROVED) -> list[Cell]:
        """Cells of ``events`` whose bound is below 1."""
        return [cell for cell in self.cells if cell.event in events and cell.says_something]

    def broken(self, events: Iterable[str] = PROVED) -> list[Cell]:
        """Cells of ``events`` where failures are more frequent than their bound."""
        return [cell for cell in self.judged(events) if cell.broken]

    def closest_to_best(self) -> float | None:
        """The smallest difference of any map's error to its SVD's; 0 where it is below that by rounding alone."""
        closest = min((row.above_best for row in self.errors if row.method != "SVD"), default=None)
        return 0.0 if closest is not None and -ROUNDING <= closest < 0 else closest


def write_part(path: Path, rows: Iterable[Cell | ErrorRow]) -> None:
    """Write a part, whole or not at all."""
    write_lines(path, map(asdict, rows))


def read_part(path: Path, kind: type[Row]) -> list[Row]:
    """Read a part back. Raises CheckpointError where it is damaged."""
    way_out = "delete it, and it is measured again"
    with reading(path, way_out=way_out):
        return [kind(**row) for row in read_lines(path, way_out=way_out)]


def write_records(result: BoundResult, facts: Mapping[str, Any], output: Path) -> None:
    """``records.jsonl``: the run with its settings and ``facts`` about the machine, then a line a number."""
    rows: list[dict[str, Any]] = [{"event": "run", "model": result.model, "texts": result.texts, **facts}]
    rows += [{"event": "guarantee", **asdict(row)} for row in result.guarantees]
    rows += [{**asdict(row), "event": "trial", "of": row.event} for row in result.cells]
    rows += [{"event": "error", **asdict(row)} for row in result.errors]
    write_lines(output / RECORDS, rows)
