"""Records from jsonl, json, csv, parquet and Hugging Face ``datasets``, one dictionary at a time, in bounded memory."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from longform.errors import DataError, require
from longform_text.data.files import CSV, JSON, JSON_LINES, TEXT, TSV, decoded, file_kind, is_saved, opened, parts
from longform_text.data.given import (
    DATASET_PREFIX,
    ROWS_AT_A_TIME,
    Classes,
    InMemory,
    as_rows,
    check_distinct,
    classes_of,
    decoded_rows,
    named_classes,
    rows,
    schema_classes,
    source_of,
)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATES = re.compile("[\ud800-\udfff]")
MOST = 2**26  # characters of one line of a csv file
_DIALECTS = {CSV: "excel", TSV: "excel-tab"}


class Record(NamedTuple):
    """One row and where it stands: ``location`` is "file:line" (from 1) or "file:row" (from 0).

    ``classes``: of fields that had numbers of classes, whose names they have now. ``table``: the file whose columns are
    the fields, None where each record has its own.
    """

    location: str
    values: dict[str, Any]
    classes: Classes = MappingProxyType({})
    table: str | None = None


def clean_text(text: str) -> tuple[str, int]:
    """The text with NUL -> space and lone surrogates -> U+FFFD, and how many there were (tokenizers refuse them)."""
    lone = 0
    try:
        text.encode()
    except UnicodeEncodeError:
        text, lone = _SURROGATES.subn(REPLACEMENT, text)
    return (text.replace("\x00", " "), lone + text.count("\x00")) if "\x00" in text else (text, lone)


Refuse = Callable[[str, DataError], None]  # takes the place of a row that cannot be read, and why; may raise


def not_read(place: str, error: DataError) -> None:
    """Raise the error of a row, which ends the reading."""
    raise error


def jsonl_records(lines: Iterable[bytes], *, name: str, first: int = 1, refuse: Refuse = not_read) -> Iterator[Record]:
    """One JSON object a line; blank lines are passed over. Raises DataError with ``name`` and the line number.

    ``first``: the number of the first line. With ``refuse`` the lines after one that cannot be read are read too.
    """
    for number, line in enumerate(lines, start=first):
        try:
            record = _jsonl_record(line, name, number)
        except DataError as error:
            refuse(f"{name}:{number}", error)
        else:
            if record is not None:
                yield record


def _jsonl_record(line: bytes, name: str, number: int) -> Record | None:
    where = f"{name}, line {number}"
    text = "".join(decoded([line], name, number))
    if not text or text.isspace():
        return None
    values = _parsed(text, where)
    if not isinstance(values, dict):
        raise DataError(f"{where}: a JSON object is needed, this is {type(values).__name__}")
    return Record(f"{name}:{number}", values)


def _parsed(text: str, where: str) -> Any:
    """The value of a JSON text. Raises DataError that begins with ``where``."""
    try:
        return json.loads(text, object_pairs_hook=partial(_object, where=where))
    except DataError:
        raise
    except RecursionError as error:
        raise DataError(f"{where}: JSON nested too deeply to read") from error
    except ValueError as error:
        said = str(error)
        if isinstance(error, json.JSONDecodeError):
            line = f"line {error.lineno}, " if error.lineno > 1 else ""
            said = f"{error.msg} at {line}column {error.colno}"
        raise DataError(
            f'{where}: not valid JSON ({said}); a jsonl file has one object a line, such as {{"text": "..."}}, a json '
            "file an array of them"
        ) from error


def _object(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        check_distinct((name for name, _ in pairs), where)
    return found


def json_records(path: Path) -> Iterator[Record]:
    """The elements of a JSON array, which is read whole: objects, or texts, which get the field "text"."""
    with opened(path) as file:
        found = _parsed("".join(decoded(parts(file), str(path))), str(path))
    if not isinstance(found, list):
        raise DataError(f"{path}: not a JSON array; one object a line is a .jsonl file")
    for number, value in enumerate(found):
        values = {"text": value} if isinstance(value, str) else value
        if not isinstance(values, dict):
            kind = type(value).__name__
            raise DataError(f"{path}, element {number}: a JSON object or a text is needed, this is {kind}")
        yield Record(f"{path}:{number}", values)


def csv_records(path: Path, kind: str) -> Iterator[Record]:
    """The rows of a csv or tsv file with a header line of distinct names. Raises DataError for rows that do not fit."""
    csv.field_size_limit(MOST)
    with opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.DictReader(_csv_lines(text, path), dialect=_DIALECTS[kind], strict=True)
        try:
            check_distinct(filter(None, reader.fieldnames or ()), f"{path}, the header")  # "" is nobody's
            for row in reader:
                if None in row or None in row.values():
                    raise DataError(f"{path}:{reader.line_num}: not as many fields as the header has")
                yield Record(f"{path}:{reader.line_num}", row, table=str(path))
        except csv.Error as error:
            raise DataError(f"{path}:{reader.reader.line_num}: not readable as {kind} ({error})") from error


def _csv_lines(text: IO[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: text.readline(MOST + 1), ""), start=1):
        if len(line) > MOST:
            raise DataError(f"{path}: a line of more than {MOST:,} characters; such records are read from .jsonl files")
        yield line if line.isascii() else "".join(decoded([line.encode("utf-8", "surrogateescape")], str(path), number))


def parquet_records(
    source: IO[bytes], name: str, first: int = 0, rows: int | None = None, refuse: Refuse = not_read
) -> Iterator[Record]:
    """The rows of a parquet file, all or ``rows`` from ``first`` on. Raises DataError when pyarrow cannot read it.

    With ``refuse`` the rows after one of which a value cannot be read are read too.
    """
    arrow, parquet = require("pyarrow", extra="cli"), require("pyarrow.parquet", extra="cli")
    row = first
    try:
        with parquet.ParquetFile(source) as file:
            check_distinct(file.schema_arrow.names, f"{name}, the columns")
            classes = schema_classes(file.schema_arrow)
            end = file.metadata.num_rows if rows is None else first + rows
            groups, at = _groups(file.metadata, first, end)
            for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME, row_groups=groups):
                wanted = batch.slice(max(0, row - at), max(0, end - max(row, at)))
                at += len(batch)
                for values in _values(wanted, name, row, refuse):
                    if values is not None:
                        yield Record(f"{name}:{row}", named_classes(values, classes), classes, name)
                    row += 1
    except DataError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
        if isinstance(error, OSError) and error.errno is not None:
            raise
        refuse(f"{name}, from row {row}", DataError(f"{name}: not a readable parquet file ({error})"))


def _groups(metadata: Any, first: int, end: int) -> tuple[list[int], int]:
    """The row groups that hold rows ``first`` to ``end``, and the first row of these."""
    ends = list(accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)))
    starts = [0, *ends]
    groups = [group for group, after in enumerate(ends) if after > first and starts[group] < end]
    return groups, starts[groups[0]] if groups else 0


def _values(batch: Any, name: str, row: int, refuse: Refuse) -> Iterator[dict[str, Any] | None]:
    """Each row, None for one that is refused: together, and one by one where one of them cannot be read."""
    try:
        yield from decoded_rows(batch, f"{name}, rows {row:,} to {row + len(batch) - 1:,}")
        return
    except DataError:
        pass
    for at in range(len(batch)):
        try:
            yield decoded_rows(batch.slice(at, 1), f"{name}, row {row + at:,}")[0]
        except DataError as error:
            refuse(f"{name}:{row + at}", error)
            yield None


def dataset_records(source: str) -> Iterator[Record]:
    """Rows of "hf:NAME[:CONFIG][:SPLIT]", streamed; NAME is a hub name or a local folder.

    Raises DataError when the data set cannot be loaded, or has several splits and none was named.
    """
    datasets = require("datasets", extra="train")
    name, *rest = source.removeprefix(DATASET_PREFIX).split(":")
    split = rest.pop() if rest else None
    try:
        loaded = datasets.load_dataset(name, *rest, split=split, streaming=True)
    except Exception as error:  # datasets raises its own, the hub's, fsspec's and builtin errors for a wrong name
        raise DataError(f'"{source}" could not be loaded with the datasets library: {error}') from error
    yield from _of_one_split(loaded, source, f"hf:{name}:")


def saved_records(path: Path) -> Iterator[Record]:
    """Rows of a folder that ``datasets`` saved, one at a time. Raises DataError as ``dataset_records`` does."""
    datasets = require("datasets", extra="train")
    try:
        loaded = datasets.load_from_disk(str(path))
    except Exception as error:  # pyarrow's and builtin errors for files that are missing or damaged
        raise DataError(f'"{path}" could not be loaded with the datasets library: {error}') from error
    yield from _of_one_split(loaded, str(path), f"{path}/")


def _of_one_split(loaded: Any, source: str, named: str) -> Iterator[Record]:
    """Rows of the one split; ``named``: what stands before a split's name where one is chosen."""
    if isinstance(loaded, dict):
        if len(loaded) != 1:
            raise DataError(
                f'"{source}" has several splits ({", ".join(loaded)}): name one, as in "{named}{next(iter(loaded))}"'
                if loaded
                else f'"{source}" has no splits'
            )
        loaded = next(iter(loaded.values()))
    try:
        yield from _rows(loaded, source)
    except Exception as error:  # as above, of what is read on the way
        raise DataError(f'"{source}" could not be read with the datasets library: {error}') from error


def memory_records(source: InMemory) -> Iterator[Record]:
    """Rows in memory. Raises DataError for an element that is no row."""
    return _rows(source.given, "texts")


def _rows(given: Any, named: str) -> Iterator[Record]:
    classes = classes_of(given)
    for number, row in enumerate(rows(given)):
        if not isinstance(row, Mapping):
            raise DataError(f"text number {number}: a row with fields is needed, this is {type(row).__name__}")
        yield Record(f"{named}:{number}", dict(row), classes)


def read_records(source: str | Path | InMemory) -> Iterator[Record]:
    """Rows of a file of records (``longform_text.data.files``), an "hf:" data set, or in memory.

    Raises DataError for anything else.
    """
    if isinstance(source, InMemory):
        return memory_records(source)
    if str(source).startswith(DATASET_PREFIX):
        return dataset_records(str(source))
    path = Path(source)
    if is_saved(path):
        return saved_records(path)
    if not path.exists() or path.is_dir():
        raise DataError(f'"{path}" is not a file; records come from a file or "{DATASET_PREFIX}NAME:SPLIT"')
    kind = file_kind(path)
    if kind == TEXT:
        raise DataError(f'"{path}" is one text; records come from .jsonl, .json, .csv, .tsv or .parquet files')
    if kind == JSON_LINES:
        return _jsonl_file(path)
    if kind == JSON:
        return json_records(path)
    return csv_records(path, kind) if kind in _DIALECTS else _parquet_file(path)


def records_of(given: Any, *fields: str | None) -> Iterator[Record]:
    """Records of names of files, of rows or a table in memory, or of columns in a tuple, which get ``fields``."""
    source = source_of(as_rows(given, *fields))
    if isinstance(source, InMemory):
        return memory_records(source)
    return chain.from_iterable(map(read_records, source))


def _jsonl_file(path: Path) -> Iterator[Record]:
    with opened(path) as file:
        yield from jsonl_records(file, name=str(path))


def _parquet_file(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:  # pyarrow takes no name that is not UTF-8
        yield from parquet_records(file, str(path))


def field(record: Record, name: str) -> Any:
    """The value of one field; raises DataError that lists the fields there are."""
    if name not in record.values:
        there = ", ".join(map(str, record.values)) or "none"
        raise DataError(f'{record.table or record.location}: no field "{name}"; the fields there are: {there}')
    return record.values[name]


def string_field(record: Record, name: str) -> str:
    """The text in one field (``clean_text``); raises DataError where there is no such field, or no text in it."""
    return clean_text(raw_string(record, name))[0]


def raw_string(record: Record, name: str) -> str:
    """Text in one field as it stands there; errors as ``string_field`` has them."""
    value = field(record, name)
    if not isinstance(value, str):
        kind = type(value).__name__
        raise DataError(f'{record.location}: the field "{name}" is {kind} ({str(value)[:40]!r}), not text')
    return value
