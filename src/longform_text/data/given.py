"""Texts as they may be given, names of files or anything in memory, and values of other libraries as Python's."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longform.errors import DataError, require

Classes = Mapping[str, Sequence[str]]  # names of the classes of columns whose values are their numbers


def python_values(value: Any) -> Any:
    """An array, a tensor, a column or a scalar as lists and plain values; anything else as it is."""
    for way in ("tolist", "to_pylist", "to_list", "as_py"):
        if hasattr(value, way):
            return getattr(value, way)()
    return value


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, pandas' NA, and what does not equal itself (NaN, NaT)."""
    differs = value is None or type(value).__name__ == "NAType" or value != value
    return isinstance(differs, bool | np.bool_) and bool(differs)


def class_names(features: Mapping[str, Any]) -> Classes:
    """The classes of ClassLabel columns, and of lists of such; ``features`` as ``datasets`` writes them down."""
    inner = {name: each.get("feature", each) for name, each in features.items() if isinstance(each, Mapping)}
    return {name: each["names"] for name, each in inner.items() if "names" in each and "_type" in each}


def schema_classes(schema: Any) -> Classes:
    """Classes by column, from the arrow schema of a table that ``datasets`` wrote."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    return class_names(about.get("info", {}).get("features") or {})


def named_classes(row: Mapping[str, Any], classes: Classes) -> dict[str, Any]:
    """A row with the names of classes in place of their numbers, and None for -1."""
    return dict(row) | {name: _named(row[name], names) for name, names in classes.items() if name in row}


def _named(value: Any, names: Sequence[str]) -> Any:
    value = python_values(value)
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    known = isinstance(value, int) and 0 <= value < len(names)
    return names[value] if known else None if isinstance(value, int) else value


DATASET_PREFIX = "hf:"
ROWS_AT_A_TIME = 256  # of a table, decoded together


@dataclass(frozen=True)
class Files:
    """Names of files and folders, "-" and "hf:" data sets, none of them a text, as on a command line."""

    names: tuple[str | Path, ...]


@dataclass(frozen=True)
class InMemory:
    """Texts in memory: a list or an iterator of them, a column, rows, a table (pandas, polars, pyarrow, datasets)."""

    given: Any

    def __str__(self) -> str:
        return f"the {type(self.given).__name__} of texts"


Source = list[str | Path] | InMemory


def source_of(given: Any) -> Source:
    """Where texts come from: names of files and folders, or memory.

    One string or Path is a name. Of a list, Paths are names, and so are strings when all of them are "hf:" names or
    files that exist; other strings are texts, and all else holds texts.
    """
    if isinstance(given, InMemory):
        return given
    if isinstance(given, Files):
        return list(given.names)
    if isinstance(given, str | Path):
        return [given]
    if isinstance(given, list | tuple) and given and all(map(_is_name, given)):
        return list(given)
    return InMemory(given)


def _is_name(item: Any) -> bool:
    if not isinstance(item, str):
        return isinstance(item, Path)
    return item.startswith(DATASET_PREFIX) or os.path.exists(item)  # pathlib raises on a text that is no path


def as_rows(given: Any, *names: str | None) -> Any:
    """Columns in a tuple as rows with fields of these names (None: not among them); anything else as it is.

    Raises DataError for columns of different lengths, or more than there are names.
    """
    if not isinstance(given, tuple) or not isinstance(source_of(given), InMemory):
        return given
    fields = [name for name in names if name is not None]
    columns = [_column(each) for each in given]
    lengths = sorted({len(each) for each in columns})
    if len(lengths) != 1 or len(columns) > len(fields):
        said = ", ".join(str(len(each)) for each in columns) or "none"
        raise DataError(f"a tuple holds columns of one length, of {', '.join(fields)}; their lengths here: {said}")
    return [dict(zip(fields, row, strict=False)) for row in zip(*columns, strict=True)]


def check_distinct(names: Iterable[Any], where: str) -> None:
    """Raise DataError, which begins with ``where``, for two columns or fields of one name: one would be lost."""
    if twice := [f'"{name}"' for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{where}: the name {', '.join(twice)} stands there more than once: rename all but one")


def column_names(given: Any) -> list[Any] | None:
    """The columns of a table, None for what is no table. Raises DataError as ``check_distinct`` does."""
    names = getattr(given, "column_names", None)
    names = getattr(given, "columns", None) if names is None else names
    if names is None:
        return None
    check_distinct(names, f"the columns of the {type(given).__name__}")
    return list(names)


def elements(given: Any, text_field: str, pair_field: str | None = None) -> Iterable[Any]:
    """Each text, or what holds it: of a table the values of ``text_field``, or pairs of them and ``pair_field``'s.

    Raises DataError for what holds no texts and for a column that is not there.
    """
    texts = check_texts(given)
    if column_names(texts) is None:
        return texts
    names, table = [name for name in (text_field, pair_field) if name is not None], _arrow_table(given)
    for name in names:
        if name not in (there := column_names(table) or []):
            said = ", ".join(map(str, there)) or "none"
            raise DataError(f'the {type(given).__name__} has no column "{name}"; its columns are: {said}')
    columns = [python_values(table[name]) for name in names]
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)


def _arrow_table(given: Any) -> Any:
    """A table of polars, DuckDB, ... as pyarrow's, by the interface that they share; anything else as it is.

    Raises DataError for one that pyarrow cannot have, or that holds objects of Python, which it would take for bytes.
    """
    if hasattr(given, "itertuples") or not hasattr(given, "__arrow_c_stream__") or column_names(given) is None:
        return given
    way = "give its rows, as to_dicts() of polars makes them"
    kinds = zip(column_names(given) or (), getattr(given, "dtypes", ()), strict=False)
    if objects := [name for name, kind in kinds if str(kind) == "Object"]:
        raise DataError(f"the {type(given).__name__} has objects of Python in {', '.join(objects)}: {way}")
    try:
        return require("pyarrow", extra="cli").table(given)
    except (ValueError, TypeError) as error:  # pyarrow's errors for a type that it lacks
        raise DataError(f"the {type(given).__name__} is no table for pyarrow ({error}): {way}") from error


def rows(given: Any) -> Iterator[Any]:
    """Each row of a table as a dictionary, with the names of its classes; the elements of anything else."""
    if hasattr(given, "itertuples"):
        return _rows_of_frame(given)
    texts = _arrow_table(check_texts(given))
    classes = classes_of(texts)
    if hasattr(texts, "to_batches"):
        texts = _rows_of_table(texts)
    return (named_classes(row, classes) for row in texts) if classes else iter(texts)


def _rows_of_table(table: Any) -> Iterator[dict[str, Any]]:
    row = 0
    for batch in table.to_batches(max_chunksize=ROWS_AT_A_TIME):
        yield from decoded_rows(batch, f"rows {row:,} to {row + len(batch) - 1:,} of the table")
        row += len(batch)


def decoded_rows(batch: Any, where: str) -> list[dict[str, Any]]:
    """The rows of a record batch. Raises DataError, which begins with ``where``, where a value cannot be read."""
    try:
        return batch.to_pylist()
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, a date that Python does not know
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.to_pylist()
            except (ValueError, OverflowError):
                raise DataError(f'{where}: the column "{name}" holds what cannot be read ({error})') from error
        raise


def _rows_of_frame(frame: Any) -> Iterator[dict[str, Any]]:
    """Rows of a DataFrame; pandas' NA, which is neither equal to anything nor not, becomes None."""
    missing, names = sys.modules["pandas"].NA, list(map(str, frame.columns))
    check_distinct(names, "the columns of the DataFrame")
    for values in frame.itertuples(index=False, name=None):
        yield {name: None if value is missing else value for name, value in zip(names, values, strict=True)}


def classes_of(given: Any) -> Classes:
    """The classes of a data set of ``datasets`` or a table of pyarrow, and of a column of one under the name ""."""
    if hasattr(given, "to_batches"):
        return schema_classes(given.schema)
    features = getattr(given, "features", None)
    if hasattr(features, "_type"):
        return class_names({"": asdict(features)})
    return class_names(features.to_dict()) if hasattr(features, "to_dict") else {}


def _column(given: Any) -> list[Any]:
    """One of several columns, given by itself."""
    classes, values = classes_of(given), python_values(check_texts(given))
    return [named_classes({"": each}, classes)[""] for each in values] if classes else list(values)


def check_texts(given: Any) -> Any:
    """Given texts, to iterate over. Raises DataError, which says what to give, for what cannot hold several texts."""
    if isinstance(given, Mapping):
        keys = ", ".join(map(str, given)) or "none"
        raise DataError(
            f"texts is {type(given).__name__} with the keys: {keys}. Give what is under one of them, or a list of rows"
        )
    if isinstance(given, str | bytes) or not (isinstance(given, Iterable) or hasattr(given, "__arrow_c_stream__")):
        way = "give a list of texts, an iterator, a column or a table"
        raise DataError(
            f"texts is {type(given).__name__}: {'collect() it, or ' if hasattr(given, 'collect') else ''}{way}"
        )
    column_of_arrow = hasattr(given, "to_pylist") and column_names(given) is None
    return given.to_pylist() if column_of_arrow else given
