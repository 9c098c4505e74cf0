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
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError, DataError
from longform.files import RunFile, clear_leftovers, entries, sole_output, whole_lines, write_json, write_lines
from longform_text.data.parts import Part
from longform_text.data.text import ReadReport
from longform_text.data.token_store import input_paths
from longform_text.inference.resumable import CUT_NAMED, count_records

RUN, MANIFEST, FAILED, FINISHED = "_run.json", "_manifest.jsonl", "_failed.jsonl", "_finished.json"
PART, BEGUN = ".parquet", ".begun"  # how names end of parts that are there, and of what counts starts at one
_PART_NAME = re.compile(r"part-\d{6,}-\d{6,}\.parquet")
WAY_OUT = "restart=True (--restart) to begin anew"


@contextlib.contextmanager
def place_of_parts(output: str | Path, *, inputs: Iterable[Any], restart: bool) -> Generator[Path]:
    """The folder ``output``, which this process alone writes meanwhile.

    Raises ConfigurationError as ``sole_output`` does, and for a finished output unless it is to ``restart``.
    """
    with sole_output(output, inputs=input_paths(inputs), folder=True, models=False) as place:
        if (place / FINISHED).exists() and not restart:
            raise ConfigurationError(
                f'"{output}" is finished already: give restart=True (--restart) to make it anew, or another output'
            )
        if restart and (place / RUN).exists():
            for path in place.iterdir():
                if _PART_NAME.fullmatch(path.name) or path.name in (MANIFEST, FAILED, FINISHED):
                    path.unlink()
        yield place


class Manifest:
    """The manifest of a folder of parts, which only the process that has the folder writes.

    ``rows``: its lines by the names of parts; ``begun``: documents in parts that earlier starts left. Raises
    ConfigurationError for a folder of another run, and CheckpointError for one whose ``_run.json`` is damaged.
    """

    def __init__(self, place: Path, identity: Mapping[str, Any]) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        run = RunFile(place / RUN, place, "run over parts of files", WAY_OUT)
        run.read(begun=entries(place, but=(RUN,)))
        rows = _rows(place / MANIFEST)
        run.open(identity, begun=["parts"] if rows else [])
        clear_leftovers(place)
        for path in place.glob(f".part-*{BEGUN}"):
            path.unlink()
        there = {path.name for path in place.iterdir()}
        self.rows = {row["part"]: row for row in rows if not row["counts"]["records"] or row["part"] + PART in there}
        write_lines(place / MANIFEST, self.rows.values())
        self.begun = self.totals()["documents"]
        self._file = (place / MANIFEST).open("ab")

    def missing(self, parts: Iterable[Part]) -> list[Part]:
        """The parts that are not done. Raises DataError where the input of one that is done was another then."""
        missing = []
        for part in parts:
            row = self.rows.get(part.name)
            if row is None:
                missing.append(part)
            elif (row["input"], row["first"], row["rows"]) != (part.digest, part.first, part.rows):
                raise DataError(
                    f'"{part.file.name}" has changed since parts of it were written to "{self.place}": begin anew with '
                    "restart=True (--restart), or give another output"
                )
        return missing

    def record(self, row: Mapping[str, Any]) -> None:
        """Add a part whose file stands in its place; kept even if this process is killed next."""
        self.rows[row["part"]] = dict(row)
        self._file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def totals(self) -> Counter[str]:
        """The sums of all counts in the manifest."""
        total = Counter({**asdict(ReadReport()), **count_records([]), "failed": 0})
        del total["passed_over"]
        for row in self.rows.values():
            total.update(row["counts"])
        return total

    def cut(self) -> list[str]:
        """The first documents that were cut, by id."""
        return [name for row in self.rows.values() for name in row["cut"]][:CUT_NAMED]

    def finish(self) -> None:
        """Say which rows failed, and that all parts are there."""
        failures = [{"file": row["file"], **each} for row in self.rows.values() for each in row["failed"]]
        if failures:
            write_lines(self.place / FAILED, failures)
        write_json(self.place / FINISHED, dict(self.totals()))

    def close(self) -> None:
        """Stop writing; what was written stays for the next start."""
        self._file.close()


def _rows(path: Path) -> list[dict[str, Any]]:
    """Lines of a manifest before the first that is cut off or damaged; parts that later lines have are made anew."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        return [row for _, row in whole_lines(file)]
