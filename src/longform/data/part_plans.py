"""Parts of input files: ranges of rows that are read, computed and written together, and the plan that cuts them.

The plan of a file depends on its content alone, so that every start makes the same one, and its digest tells when the
file has changed.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from longform.data.files import JSON_LINES, PIECE
from longform.data.given import check_distinct
from longform.data.places import InputFile, opened_place, random_access
from longform.errors import require

PART_BYTES = 2**23  # of texts in a part, about; a longer one is a part of its own
CHARACTERS = 16  # of a digest


class Part(NamedTuple):
    """Rows ``first`` to ``first + rows`` of a file; of jsonl all lines count, and bytes ``begin`` to ``end`` hold them.

    ``name`` sorts as the parts do. ``digest``: of the whole file.
    """

    name: str
    file: InputFile
    first: int
    rows: int
    begin: int
    end: int
    digest: str


class FilePlan(NamedTuple):
    """The parts of a file; ``refused``: why it cannot be read, where it cannot."""

    file: InputFile
    digest: str
    parts: list[Part]
    refused: str | None = None


def plan_file(number: int, file: InputFile, part_rows: int) -> FilePlan:
    """Cut the file with the place ``number`` among all into parts of at most ``part_rows`` rows; it is read once."""
    digest = hashlib.sha256()
    try:
        cuts = list(_lines(file, part_rows, digest) if file.kind == JSON_LINES else _rows(file, part_rows, digest))
    except (require("pyarrow", extra="cli").ArrowException, OSError, ValueError, EOFError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        return FilePlan(file, digest.hexdigest()[:CHARACTERS], [], f"not readable as {file.kind}: {said}")
    key = digest.hexdigest()[:CHARACTERS]
    parts = [Part(part_name(number, at), file, *cut, key) for at, cut in enumerate(cuts)]
    return FilePlan(file, key, parts)


def part_name(file: int, part: int) -> str:
    """The name of a part by the places of its file and of itself in it."""
    return f"part-{file:06d}-{part:06d}"


Cut = tuple[int, int, int, int]  # first, rows, begin, end


def _lines(file: InputFile, part_rows: int, digest: Any) -> Iterator[Cut]:
    first = rows = begin = at = 0
    open_end = False  # of the last line
    with opened_place(file) as stream:
        while piece := stream.readline(PIECE):
            digest.update(piece)
            at += len(piece)
            if open_end := not piece.endswith(b"\n"):
                continue
            rows += 1
            if rows == part_rows or at - begin >= PART_BYTES:
                yield first, rows, begin, at
                first, rows, begin = first + rows, 0, at
    if at > begin:
        yield first, rows + open_end, begin, at


def _rows(file: InputFile, part_rows: int, digest: Any) -> Iterator[Cut]:
    parquet = require("pyarrow.parquet", extra="cli")
    with random_access(file) as stream:
        while piece := stream.read(PIECE * 16):
            digest.update(piece)
        stream.seek(0)
        opened = parquet.ParquetFile(stream)
        check_distinct(opened.schema_arrow.names, "the columns")
        found = opened.metadata
        size = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
        total = found.num_rows
        each = min(part_rows, max(1, PART_BYTES * total // max(size, 1)))
        for first in range(0, total, each):
            yield first, min(each, total - first), 0, 0
