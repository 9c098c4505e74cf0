"""How many documents there are to read, counted without reading them as such: for an estimate of the time left."""

from collections.abc import Sized
from pathlib import Path
from typing import Any

from longform.data.files import JSON_LINES, PARQUET, PIECE, TEXT, file_kind, opened
from longform.data.given import InMemory
from longform.data.records import read_records
from longform.data.text import ReadReport, source_files
from longform.errors import DataError, require


def count_documents(sources: Any) -> int | None:
    """How many documents ``sources`` hold, as ``read_documents`` takes them (blank lines of a jsonl file count too).

    None where reading alone tells, which a pipe, standard input and a data set of the hub allow once.
    """
    if isinstance(sources, InMemory):
        return len(sources.given) if isinstance(sources.given, Sized) else None
    listed = [sources] if isinstance(sources, str | Path) else sources
    if not isinstance(listed, list | tuple):
        return None
    try:
        counts = [_count(Path(file)) for source in listed for file in source_files(source, ReadReport())]
    except DataError:  # reading will say it, with the place
        return None
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count(path: Path) -> int | None:
    if not path.is_file():
        return None
    kind = file_kind(path)
    if kind == TEXT:
        return 1
    if kind == PARQUET:
        try:
            with path.open("rb") as file:
                return require("pyarrow.parquet", extra="cli").read_metadata(file).num_rows
        except (OSError, ValueError):  # pyarrow's errors are of these
            return None
    return _lines(path) if kind == JSON_LINES else sum(1 for _ in read_records(path))


def _lines(path: Path) -> int:
    count, last = 0, b"\n"
    with opened(path) as file:
        while piece := file.read(16 * PIECE):
            count, last = count + piece.count(b"\n"), piece
    return count + (not last.endswith(b"\n"))
