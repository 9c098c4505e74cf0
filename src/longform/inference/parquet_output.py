"""Records of prediction and embedding as a parquet file."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from longform.errors import require
from longform.inference.kept_fields import RESULTS

ROWS_AT_A_TIME = 1024  # of a row group


def write_parquet(
    records: Callable[[], Iterator[dict[str, Any]]], file: Any, *, vector_dtype: str = "float32",
    kept_as_text: bool = False,
) -> None:  # fmt: skip
    """Write all records, whose fields are those of the first; vectors as lists of fixed size of ``vector_dtype``.

    ``records``: gives them from the beginning. Kept fields have the type that fits every value; where there is none,
    their values are written as JSON. ``kept_as_text``: they are text already, or None.
    """
    arrow = require("pyarrow", extra="cli")
    parquet = require("pyarrow.parquet", extra="cli")
    first = next(records())
    own = {name: _own_type(arrow, name, value, vector_dtype) for name, value in first.items() if name in RESULTS}
    others = [name for name in first if name not in RESULTS]
    kept = dict.fromkeys(others, arrow.string())
    if not kept_as_text:
        kept = _kept_types(arrow, chain(records(), records()), others)
    mixed = [name for name, kind in kept.items() if kind is None]
    schema = arrow.schema([(name, own[name] if name in own else kept[name] or arrow.string()) for name in first])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _row_groups(records()):
            for name in mixed:
                rows = [{**row, name: json.dumps(row[name], ensure_ascii=False)} for row in rows]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))


def _row_groups(records: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while rows := list(islice(records, ROWS_AT_A_TIME)):
        yield rows


def _own_type(arrow: Any, name: str, value: Any, vector_dtype: str) -> Any:
    if isinstance(value, Mapping):
        return arrow.struct([(label, arrow.float64()) for label in value])
    if name == "embedding":
        return arrow.list_(arrow.type_for_alias(vector_dtype), len(value))
    if isinstance(value, list):
        return arrow.list_(arrow.string())
    return {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}[type(value)]


def _kept_types(arrow: Any, records: Iterator[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """The type of each kept field, None where its values have none in common; they come twice, since a type that
    holds the first ones may grow to one that does not.
    """
    found: dict[str, Any] = dict.fromkeys(names, arrow.null())
    for rows in _row_groups(records) if names else ():
        for name, kind in found.items():
            found[name] = None if kind is None else _common(arrow, kind, [row[name] for row in rows])
    return found


def _common(arrow: Any, kind: Any, values: list[Any]) -> Any:
    """The type that has ``kind`` and all ``values`` as they are and that parquet knows, None where there is none."""
    try:
        both = [arrow.schema([("kept", each)]) for each in (kind, arrow.array(values).type)]
        common = arrow.unify_schemas(both, promote_options="permissive").field("kept").type
        whole = arrow.array(values, common).to_pylist() == values
    except (arrow.ArrowException, OverflowError):  # mixed types, large numbers
        return None
    return common if whole and "struct<>" not in str(common) else None
