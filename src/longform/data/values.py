"""Values of other libraries (numpy, torch, pandas, polars, pyarrow, datasets) as Python has them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
    """The same of the arrow schema of a table that ``datasets`` wrote."""
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
