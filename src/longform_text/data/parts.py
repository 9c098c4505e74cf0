"""Parts of input files: ranges of rows that are read, computed and written together.

How a file is cut depends on its content only, so that every start makes the same parts, and its digest tells when the
file has changed.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from longform.errors import DataError, require
from longform_text.data.files import JSON_LINES, PIECE
from longform_text.data.given import check_distinct
from longform_text.data.places import InputFile, opened_place, random_access
from longform_text.data.records import Record, Refuse, jsonl_records, parquet_records
from longform_text.data.text import Document, Reader

PART_BYTES = 2**23  # of texts in a part, about; a longer one is a part of its own
CHARACTERS = 16  # of a digest
Cut = tuple[int, int, int]  # first, rows, begin


class Part(NamedTuple):
    """Rows ``first`` to ``first + rows`` of a file; of jsonl all lines count, and the first begins at byte ``begin``.

    ``name`` sorts as the parts do. ``digest``: of the whole file. ``refused``: why the file cannot be read; it has one
    part then.
    """

    name: str
    file: InputFile
    first: int
    rows: int
    begin: int
    digest: str
    refused: str | None = None


def parts_of(number: int, file: InputFile, part_rows: int) -> list[Part]:
    """Cut the file with the place ``number`` among all into parts of at most ``part_rows`` rows; it is read once."""
    digest, refused = hashlib.sha256(), None
    try:
        cuts = list(
            _cut_lines(file, part_rows, digest) if file.kind == JSON_LINES else _cut_table(file, part_rows, digest)
        )
    except (require("pyarrow", extra="cli").ArrowException, OSError, ValueError, EOFError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        cuts, refused = [(0, 0, 0)], f"not readable as {file.kind}: {said}"
    key = digest.hexdigest()[:CHARACTERS]
    return [Part(f"part-{number:06d}-{at:06d}", file, *cut, key, refused) for at, cut in enumerate(cuts)]


def _cut_lines(file: InputFile, part_rows: int, digest: Any) -> Iterator[Cut]:
    first = rows = begin = at = 0
    with opened_place(file) as stream:
        for line in stream:
            digest.update(line)
            rows, at = rows + 1, at + len(line)
            if rows == part_rows or at - begin >= PART_BYTES:
                yield first, rows, begin
                first, rows, begin = first + rows, 0, at
    if rows:
        yield first, rows, begin


def _cut_table(file: InputFile, part_rows: int, digest: Any) -> Iterator[Cut]:
    parquet = require("pyarrow.parquet", extra="cli")
    with random_access(file) as stream:
        while piece := stream.read(PIECE * 16):
            digest.update(piece)
        stream.seek(0)
        opened = parquet.ParquetFile(stream)
        check_distinct(opened.schema_arrow.names, "the columns")
        found = opened.metadata
        size = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
        each = min(part_rows, max(1, PART_BYTES * found.num_rows // max(size, 1)))
        for first in range(0, found.num_rows, each):
            yield first, min(each, found.num_rows - first), 0


def part_documents(part: Part, reader: Reader, refuse: Refuse) -> Iterator[Document]:
    """The documents of ``part`` in order; ``refuse`` is called for a row, or rows, that cannot be read."""
    if part.refused is not None:
        refuse(part.file.name, DataError(part.refused))
        return
    for record in _records(part, refuse):
        try:
            document = reader.document(record)
        except DataError as error:
            refuse(record.location, error)
        else:
            yield document


def _records(part: Part, refuse: Refuse) -> Iterator[Record]:
    name = part.file.name
    if part.file.kind == JSON_LINES:
        with opened_place(part.file, part.begin) as stream:
            lines = islice(stream, part.rows)
            yield from jsonl_records(lines, name=name, first=part.first + 1, refuse=refuse)
    else:
        with random_access(part.file) as stream:
            yield from parquet_records(stream, name, part.first, part.rows, refuse)
