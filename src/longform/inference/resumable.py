"""Output that survives a kill: records are appended to a partial file, which becomes the output when it is whole."""

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from longform.choices import STANDARD_OUTPUT
from longform.data.storage import atomic_write, flush_folder
from longform.errors import ConfigurationError
from longform.inference.parquet_output import write_parquet
from longform.runs.folder import RunFile
from longform.runs.output import sole_output

PARTIAL, SETTINGS, DOCUMENTS = BESIDE = (".partial", ".settings", ".documents")  # while it is not finished
DIGITS = {"float32": 9, "float16": 5}  # that tell the numbers of a dtype apart
OUTPUT_SUFFIXES = (".jsonl", ".parquet")
_WHOLE_KEY = re.compile(rb"\S+ (\d{1,9})\n")


@contextlib.contextmanager
def place_of_output(output: str | Path, *, inputs: Iterable[Any], restart: bool) -> Generator[Path]:
    """The file ``output``, which this process alone writes meanwhile; "-" is standard output.

    Raises ConfigurationError as ``sole_output`` does, for a file of another kind, and for a finished output unless it
    is to ``restart``: it takes long to make and is not made again unasked.
    """
    if str(output) == STANDARD_OUTPUT:
        yield Path(STANDARD_OUTPUT)
        return
    if Path(output).suffix not in OUTPUT_SUFFIXES:
        raise ConfigurationError(
            f'output is "{output}"; its suffix is one of {", ".join(OUTPUT_SUFFIXES)}, or none for a folder'
        )
    with sole_output(output, inputs=inputs, beside=BESIDE) as place:
        if place.exists() and not restart and not place.with_name(place.name + PARTIAL).exists():
            for end in BESIDE:  # left by a start that was killed when all was written
                place.with_name(place.name + end).unlink(missing_ok=True)
            raise ConfigurationError(
                f'"{output}" is finished already: give restart=True (--restart) to make it anew, or another output'
            )
        yield place


def record_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of JSON; of vectors as many digits as give their numbers back exactly."""
    plain = {
        name: [float(f"{each:.{DIGITS[value.dtype.name]}g}") for each in value.tolist()]
        if isinstance(value, np.ndarray)
        else value
        for name, value in record.items()
    }
    return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def count_records(records: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many records there are, their tokens, documents that were cut, and tokens that were cut off."""
    found: Counter[str] = Counter(records=0, tokens=0, truncated=0, truncated_tokens=0)
    for record in records:
        cut = record.get("truncated", 0)  # of chunks nothing is cut off
        found.update(records=1, tokens=record["tokens"], truncated=int(cut > 0), truncated_tokens=cut)
    return found


class ResumableOutput:
    """Appends records, in order, for ``output`` (.jsonl or .parquet); a second start goes on where the first ended.

    Beside ``output`` stand, until it is finished, ``output.partial`` (one record a line), ``output.documents`` (the key
    of each document and its number of records, one a line) and ``output.settings``, the run's identity
    (longform.runs.folder). ``vector_dtype``: of vectors in a .parquet. ``done``: documents all of whose records an
    earlier start left. Raises ConfigurationError that names what changed; ``restart`` discards what was there.
    """

    def __init__(
        self, output: str | Path, settings: Mapping[str, Any], *, vector_dtype: str = "float32", restart: bool = False
    ) -> None:
        self.output = Path(output)
        self.partial = self.output.with_name(self.output.name + PARTIAL)
        self._settings = self.output.with_name(self.output.name + SETTINGS)
        self.done, self._vector_dtype = 0, vector_dtype
        if restart:
            self.partial.unlink(missing_ok=True)
        run = RunFile(self._settings, self.partial, "run", "restart=True (--restart) to begin anew")
        run.open(settings, begun=["documents"] if self.partial.exists() else [])
        self._file = self.partial.open("a+b")
        self._documents = self.output.with_name(self.output.name + DOCUMENTS)
        self._keys = self._documents.open("a+b")
        self._keep_whole_lines()

    def append(self, records: Sequence[Mapping[str, Any]], document: str) -> None:
        """Write the records of the document with the key ``document``; kept even if the process is killed next.

        Raises OSError on a full disk.
        """
        self._keys.write(f"{document} {len(records)}\n".encode())
        self._keys.flush()  # first: records always have the key of their document
        for record in records:
            self._file.write(record_line(record))
        self._file.flush()

    def records(self) -> Iterator[dict[str, Any]]:
        """What has been written so far, from the beginning."""
        with self.partial.open("rb") as lines:
            yield from map(json.loads, lines)

    def documents(self) -> Iterator[str]:
        """The keys of the documents whose records an earlier start left."""
        with self._documents.open("rb") as lines:
            yield from (line.decode().split()[0] for line in islice(lines, self.done))

    def totals(self) -> dict[str, int]:
        """Records, tokens, and what was cut, so far."""
        return dict(count_records(self.records()))

    def finish(self) -> None:
        """The partial file becomes the output, which replaces an older one at once."""
        os.fsync(self._file.fileno())
        self._file.close()
        if self.output.suffix == ".parquet":
            with atomic_write(self.output, "wb") as file:
                write_parquet(self.records, file, vector_dtype=self._vector_dtype)
            self.partial.unlink()
        else:
            self.partial.replace(self.output)
            flush_folder(self.output.parent)
        self._forget()

    def close(self) -> None:
        """Stop writing; what was written stays for the next start (nothing stays of nothing)."""
        self._file.close()
        self._keys.close()
        if self.partial.exists() and self.partial.stat().st_size == 0:
            self.partial.unlink()
            self._forget()

    def _forget(self) -> None:
        self._keys.close()
        for path in (self._documents, self._settings):
            path.unlink(missing_ok=True)

    def _keep_whole_lines(self) -> None:
        """A kill in the middle of a line leaves a part of it, a lost disk other lengths: keep what both files have."""
        whole, known = self._file.seek(0), self._keys.seek(0)
        for key in self._keys:
            count = _WHOLE_KEY.fullmatch(key)
            lines = list(islice(self._file, int(count[1]))) if count else []
            if not count or len(lines) < int(count[1]) or not all(map(_is_whole, lines)):
                break
            whole, known = whole + sum(map(len, lines)), known + len(key)
            self.done += 1
        self._file.truncate(whole)
        self._keys.truncate(known)


def _is_whole(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except ValueError:
        return False
