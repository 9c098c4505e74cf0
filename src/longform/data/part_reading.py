"""The documents of a part of an input file, where a row that cannot be read need not be the end of the others."""

from collections.abc import Callable, Iterator
from typing import Any

from longform.data.files import JSON_LINES
from longform.data.given import ROWS_AT_A_TIME, decoded_rows, named_classes, schema_classes
from longform.data.part_plans import Part
from longform.data.places import opened_place, random_access
from longform.data.records import Record, jsonl_record
from longform.data.text import Document, Reader
from longform.errors import DataError, require

Refuse = Callable[[str, Exception], None]  # takes the place of what cannot be read, and why; may raise


def part_documents(part: Part, reader: Reader, refuse: Refuse) -> Iterator[Document]:
    """The documents of ``part`` in order; ``refuse`` is called for a row, or rows, that cannot be read."""
    records = _lines(part, refuse) if part.file.kind == JSON_LINES else _rows(part, refuse)
    for record in records:
        try:
            document = reader.document(record)
        except DataError as error:
            refuse(record.location, error)
        else:
            yield document


def _lines(part: Part, refuse: Refuse) -> Iterator[Record]:
    name, number = part.file.name, part.first
    try:
        with opened_place(part.file, part.begin) as stream:
            for number, line in enumerate(stream, start=part.first + 1):
                try:
                    record = jsonl_record(line, name=name, number=number)
                except DataError as error:
                    refuse(f"{name}:{number}", error)
                else:
                    if record is not None:
                        yield record
                if number == part.first + part.rows:
                    break
    except (OSError, EOFError, UnicodeDecodeError) as error:
        refuse(f"{name}, after line {number}", DataError(f'"{name}" cannot be read: {error}'))


def _rows(part: Part, refuse: Refuse) -> Iterator[Record]:
    arrow, parquet = require("pyarrow", extra="cli"), require("pyarrow.parquet", extra="cli")
    name, row, end = part.file.name, part.first, part.first + part.rows
    try:
        with random_access(part.file) as stream:
            file = parquet.ParquetFile(stream)
            groups, at = _groups(file.metadata, part.first, end)
            classes = schema_classes(file.schema_arrow)
            for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME, row_groups=groups):
                wanted = batch.slice(max(0, row - at), max(0, end - max(row, at)))
                at += len(batch)
                for values in _values(wanted, name, row, refuse):
                    if values is not None:
                        yield Record(f"{name}:{row}", named_classes(values, classes))
                    row += 1
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        refuse(f"{name}, rows {row} to {end - 1}", DataError(f"{name}: not a readable parquet file ({error})"))


def _groups(metadata: Any, first: int, end: int) -> tuple[list[int], int]:
    """The row groups that hold rows ``first`` to ``end``, and the first row of these."""
    groups, begun, at = [], 0, 0
    for group in range(metadata.num_row_groups):
        after = at + metadata.row_group(group).num_rows
        if after > first and at < end:
            begun = begun if groups else at
            groups.append(group)
        at = after
    return groups, begun


def _values(batch: Any, name: str, row: int, refuse: Refuse) -> Iterator[dict[str, Any] | None]:
    """Each row, None for one that is refused: together, and one by one where one of them cannot be read."""
    where = f"{name}, rows {row:,} to {row + len(batch) - 1:,}"
    try:
        yield from decoded_rows(batch, where)
        return
    except DataError:
        pass
    for at in range(len(batch)):
        try:
            yield decoded_rows(batch.slice(at, 1), f"{name}, row {row + at:,}")[0]
        except DataError as error:
            refuse(f"{name}:{row + at}", error)
            yield None
