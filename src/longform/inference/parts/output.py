"""Output in parts: a folder of parquet files, each of which appears whole, and a manifest that says which are there.

``part-FFFFFF-PPPPPP.parquet`` has what was made of part P of input file F: sorted names are in the input's order.
``_manifest.jsonl`` has a line a part, in the order in which they were done; what is in it is never made again.
``_run.json`` says which run it is, ``_failed.jsonl`` which rows failed, and ``_finished.json`` that all is there.
Programs that read folders of parquet files pass over names that begin with "_".
"""

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from longform.data.part_plans import FilePlan, Part, part_name
from longform.data.storage import clear_leftovers
from longform.data.text import ReadReport
from longform.errors import ConfigurationError, DataError
from longform.inference.resumable import CUT_NAMED, count_records
from longform.runs.digest import content_key
from longform.runs.files import reading, write_json, write_lines
from longform.runs.folder import RunFile
from longform.runs.output import entries, sole_output

RUN, MANIFEST, FAILED, FINISHED = "_run.json", "_manifest.jsonl", "_failed.jsonl", "_finished.json"
PART = ".parquet"
_PART_NAME = re.compile(r"part-\d{6,}-\d{6,}\.parquet")


@contextlib.contextmanager
def place_of_parts(output: str | Path, *, inputs: Iterable[Any], restart: bool) -> Generator[Path]:
    """The folder ``output``, which this process alone writes meanwhile.

    Raises ConfigurationError as ``sole_output`` does, and for a finished output unless it is to ``restart``.
    """
    with sole_output(output, inputs=inputs, folder=True, models=False) as place:
        if (place / FINISHED).exists() and not restart:
            raise ConfigurationError(
                f'"{output}" is finished already: give restart=True (--restart) to make it anew, or another output'
            )
        if restart and (place / RUN).exists():
            _discard(place)
        yield place


def _discard(place: Path) -> None:
    """Remove what a run wrote, but the file that says which run it was."""
    for path in place.iterdir():
        if _PART_NAME.fullmatch(path.name) or path.name in (MANIFEST, FAILED, FINISHED):
            path.unlink()


class PartsOutput:
    """The manifest of a folder of parts, which only the process that has the folder writes.

    ``begun``: documents in parts that earlier starts left. Raises ConfigurationError for a folder of another run, and
    CheckpointError for a damaged one. Memory grows with the number of parts, not of documents.
    """

    def __init__(self, place: Path, identity: Mapping[str, Any]) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        run = RunFile(place / RUN, place, "run over parts of files", "restart=True (--restart) to begin anew")
        run.read(begun=entries(place, but=(RUN,)))
        run.open(identity, begun=["parts"] if any(self.rows()) else [])
        clear_leftovers(place)
        there = {path.name for path in place.iterdir()}
        self._known = {row["part"]: _key_of(row) for row in self.rows() if _is_there(row, there)}
        self._keep_known()
        self.begun = self.totals()["documents"]
        self._file = (place / MANIFEST).open("ab")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The lines of the manifest, as far as they are whole."""
        path = self.place / MANIFEST
        if not path.exists():
            return
        with path.open("rb") as lines, reading(path, way_out="restart=True (--restart) to begin anew"):
            yield from (json.loads(line) for line in lines if line.endswith(b"\n"))

    def _keep_known(self) -> None:
        """Forget parts whose files were taken away, and a line that was cut."""
        write_lines(self.place / MANIFEST, (row for row in self.rows() if row["part"] in self._known))

    def has(self, part: Part) -> bool:
        """Whether the part is done. Raises DataError where its input was another then."""
        known = self._known.get(part.name)
        if known is not None and known != part_key(part):
            self._changed(part.file.name)
        return known is not None

    def has_refused(self, number: int, plan: FilePlan) -> bool:
        """Whether a file that cannot be read is recorded. Raises DataError where it was another then."""
        known = self._known.get(part_name(number, 0))
        if known is not None and known != _key(plan.file.name, 0, 0, plan.digest):
            self._changed(plan.file.name)
        return known is not None

    def _changed(self, name: str) -> None:
        raise DataError(
            f'"{name}" has changed since parts of it were written to "{self.place}": begin anew with restart=True '
            "(--restart), or give another output"
        )

    def record(self, row: Mapping[str, Any]) -> None:
        """Add a part whose file stands in its place; kept even if this process is killed next."""
        self._file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def totals(self) -> Counter[str]:
        """The sums of all counts in the manifest."""
        total = Counter({**asdict(ReadReport()), **count_records([]), "failed": 0})
        del total["passed_over"]
        for row in self.rows():
            total.update(row["counts"])
        return total

    def cut(self) -> list[str]:
        """The first documents that were cut, by id."""
        return list(islice((name for row in self.rows() for name in row.get("cut", ())), CUT_NAMED))

    def finish(self) -> None:
        """Say which rows failed, and that all parts are there."""
        failures = [{"file": row["file"], **each} for row in self.rows() for each in row["failed"]]
        if failures:
            write_lines(self.place / FAILED, failures)
        write_json(self.place / FINISHED, dict(self.totals()))

    def close(self) -> None:
        """Stop writing; what was written stays for the next start."""
        self._file.close()


def part_key(part: Part) -> str:
    """A short name for which rows of which content a part is."""
    return _key(part.file.name, part.first, part.rows, part.digest)


def _key(name: str, first: int, rows: int, digest: str) -> str:
    return content_key(name, first, rows, digest)


def _key_of(row: Mapping[str, Any]) -> str:
    return _key(row["file"], row["first"], row["rows"], row["input"])


def _is_there(row: Mapping[str, Any], there: set[str]) -> bool:
    return row["counts"]["records"] == 0 or row["part"] + PART in there
