"""Values of other libraries (numpy, torch, pandas, polars, pyarrow, datasets) as Python has them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longform.errors import DataError

Classes = Mapping[str, Sequence[str]]  # names of the classes of columns whose values are their numbers


def python_values(value: Any) -> Any:
    """An array, a tensor, a column or a scalar as lists and plain values; anything else as it is."""
    for way in ("tolist", "to_pylist", "to_list", "as_py"):
        if hasattr(value, way):
            return getattr(value, way)()
    return value


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, pandas' NA, and what does not equal itself (NaN, NaT)."""
    if value is None or type(value).__name__ == "NAType":
        return True
    differs = value != value
    return isinstance(differs, bool | np.bool_) and bool(differs)


def class_names(features: Mapping[str, Any]) -> Classes:
    """The classes of ClassLabel columns, and of lists of such; ``features`` as ``datasets`` writes them down."""
    found = {name: each for name, each in features.items() if isinstance(each, Mapping)}
    inner = {
        name: each["feature"] if isinstance(each.get("feature"), Mapping) else each for name, each in found.items()
    }
    return {name: each["names"] for name, each in inner.items() if each.get("_type") == "ClassLabel"}


def schema_classes(schema: Any) -> Classes:
    """The same of a table of pyarrow, or a parquet file, that ``datasets`` wrote."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    return class_names(about.get("info", {}).get("features") or {})


def named_classes(row: Mapping[str, Any], classes: Classes) -> dict[str, Any]:
    """A row with the names of classes in place of their numbers, None for -1. Raises DataError for other numbers."""
    return {name: _named(value, classes[name]) if name in classes else value for name, value in row.items()}


def _named(value: Any, names: Sequence[str]) -> Any:
    value = python_values(value)
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if not isinstance(value, int):
        return value
    if not -1 <= value < len(names):
        raise DataError(f"there is no class {value}: the data set names {len(names)}, from 0")
    return None if value == -1 else names[value]
