"""Output that survives a kill: records are appended to a partial file, which becomes the output when it is whole."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from longform.data.storage import atomic_write, flush_folder
from longform.errors import ConfigurationError, require
from longform.runs.folder import RunFile

PARTIAL, SETTINGS, DOCUMENTS = BESIDE = (".partial", ".settings", ".documents")  # while it is not finished
OUTPUT_SUFFIXES = (".jsonl", ".parquet")
ROWS_AT_A_TIME = 1024  # of a parquet row group
_WHOLE_KEY = re.compile(rb"\S+ (\d{1,9})\n")


class ResumableOutput:
    """Appends records, in order, for ``output`` (.jsonl or .parquet); a second start goes on where the first ended.

    Beside ``output`` stand, until it is finished, ``output.partial`` (one record a line), ``output.documents`` (the key
    of each document and its number of records, one a line) and ``output.settings``, the run's identity
    (longform.runs.folder). ``done``: documents all of whose records an earlier start left. Raises
    ConfigurationError that names what changed; ``restart`` discards what was there.
    """

    def __init__(self, output: str | Path, settings: Mapping[str, Any], *, restart: bool = False) -> None:
        self.output = Path(output)
        if self.output.suffix not in OUTPUT_SUFFIXES:
            raise ConfigurationError(f'output is "{output}"; its suffix is one of {", ".join(OUTPUT_SUFFIXES)}')
        self.partial = self.output.with_name(self.output.name + PARTIAL)
        self._settings = self.output.with_name(self.output.name + SETTINGS)
        self.done = 0
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
            self._file.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n")
        self._file.flush()

    def records(self) -> Iterator[dict[str, Any]]:
        """What has been written so far, from the beginning."""
        with self.partial.open("rb") as lines:
            yield from map(json.loads, lines)

    def documents(self) -> Iterator[str]:
        """The keys of the documents whose records an earlier start left."""
        with self._documents.open("rb") as lines:
            yield from (line.decode().split()[0] for line in islice(lines, self.done))

    def finish(self) -> None:
        """The partial file becomes the output, which replaces an older one at once."""
        os.fsync(self._file.fileno())
        self._file.close()
        if self.output.suffix == ".parquet":
            with atomic_write(self.output, "wb") as file:
                _write_parquet(self.records(), file)
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


def _write_parquet(records: Iterator[dict[str, Any]], file: Any) -> None:
    arrow = require("pyarrow", extra="cli")
    parquet = require("pyarrow.parquet", extra="cli")
    first = list(islice(records, ROWS_AT_A_TIME))
    schema = _schema(arrow, first[0])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        rows = first
        while rows:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            rows = list(islice(records, ROWS_AT_A_TIME))


def _schema(arrow: Any, record: Mapping[str, Any]) -> Any:
    """Columns of the records that prediction and embedding write."""

    def column(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return arrow.struct([(label, arrow.float64()) for label in value])
        if isinstance(value, list):
            return arrow.list_(arrow.string() if name == "labels" else arrow.float32())
        return {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}[type(value)]

    return arrow.schema([(name, column(value, name)) for name, value in record.items()])
