"""Records from jsonl, parquet and Hugging Face ``datasets``, one dictionary at a time, in constant memory."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from longform.errors import DataError, require

ROWS_AT_A_TIME = 256  # of a parquet file, decoded together
DATASET_PREFIX = "hf:"


class Record(NamedTuple):
    """One row and where it stands: ``location`` is "file:line" (from 1) or "file:row" (from 0)."""

    location: str
    values: dict[str, Any]


def jsonl_records(lines: Iterable[bytes], *, name: str) -> Iterator[Record]:
    """One JSON object a line; blank lines are passed over. Raises DataError with ``name`` and the line number."""
    for number, line in enumerate(lines, start=1):
        text = line.decode("utf-8", errors="replace").removeprefix("\ufeff")
        if not text.strip():
            continue
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{name}, line {number}: not valid JSON ({error.msg} at column {error.colno}); "
                'a jsonl file has one object a line, such as {"text": "..."}'
            ) from error
        except RecursionError as error:
            raise DataError(f"{name}, line {number}: JSON nested too deeply to read") from error
        if not isinstance(values, dict):
            raise DataError(f"{name}, line {number}: a JSON object is needed, this is {type(values).__name__}")
        yield Record(f"{name}:{number}", values)


def parquet_records(path: Path) -> Iterator[Record]:
    """The rows of a parquet file. Raises DataError when pyarrow cannot read it."""
    arrow = require("pyarrow", extra="cli")
    parquet = require("pyarrow.parquet", extra="cli")
    try:
        row = 0
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME):
                for values in batch.to_pylist():
                    yield Record(f"{path}:{row}", values)
                    row += 1
    except arrow.ArrowException as error:
        raise DataError(f"{path}: not a readable parquet file ({error})") from error


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
    if isinstance(loaded, dict):
        if len(loaded) > 1:
            raise DataError(f'"{source}" has several splits ({", ".join(loaded)}): name one, as in "hf:{name}:train"')
        loaded = next(iter(loaded.values()))
    for row, values in enumerate(loaded):
        yield Record(f"{source}:{row}", dict(values))


def read_records(source: str | Path) -> Iterator[Record]:
    """Rows of a ``.jsonl`` or ``.parquet`` file or an "hf:" data set; raises DataError when it is none of these."""
    if str(source).startswith(DATASET_PREFIX):
        return dataset_records(str(source))
    path = Path(source)
    if not path.is_file():
        raise DataError(f'"{path}" is not a file; records come from .jsonl, .parquet or "{DATASET_PREFIX}NAME:SPLIT"')
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return parquet_records(path)
    if suffix in (".jsonl", ".ndjson"):
        return _jsonl_file(path)
    raise DataError(f'"{path}" has the suffix "{path.suffix}"; records come from .jsonl or .parquet files')


def _jsonl_file(path: Path) -> Iterator[Record]:
    with path.open("rb") as lines:
        yield from jsonl_records(lines, name=str(path))


def field(record: Record, name: str) -> Any:
    """The value of one field; raises DataError that lists the fields there are."""
    if name not in record.values:
        there = ", ".join(map(str, record.values)) or "none"
        raise DataError(f'{record.location}: no field "{name}"; the fields there are: {there}')
    return record.values[name]


def string_field(record: Record, name: str) -> str:
    """The text in one field; raises DataError where there is no such field, or something else in it."""
    value = field(record, name)
    if not isinstance(value, str):
        kind = type(value).__name__
        raise DataError(f'{record.location}: the field "{name}" is {kind} ({str(value)[:40]!r}), not text')
    return value
