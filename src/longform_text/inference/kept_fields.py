"""Fields of documents' records that prediction and embedding carry along into their output."""

import base64
import json
from collections.abc import Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from longform.errors import ConfigurationError, DataError
from longform_text.data.given import is_missing, python_values
from longform_text.data.text import Document, clean_text, written

RESULTS = frozenset(
    ("id", "chunk", "start", "end", "embedding", "label", "labels", "score", "scores", "tokens", "truncated")
)  # fields that records of ours have themselves
TEXTS = (date, time, timedelta, Decimal, UUID, complex, np.datetime64, np.timedelta64)  # their text says all


def kept_names(keep: Sequence[str]) -> dict[str, str]:
    """The name of each kept field in the output -> its name in the source; ``keep``: "FIELD" or "NEW=FIELD" each.

    Raises ConfigurationError for a name that a record has already.
    """
    found: dict[str, str] = {}
    for given in keep:
        name, _, field = given.partition("=")
        if name in RESULTS or name in found:
            there = "is a field of our records" if name in RESULTS else "is kept twice"
            raise ConfigurationError(f'keep: "{name}" {there}; give it another name: {name}-given={field or name}')
        found[written(name)] = field or name
    return found


def kept_fields(document: Document, names: Mapping[str, str], *, text_field: str | None) -> dict[str, Any]:
    """The values of a document's kept fields, as JSON holds them without loss: what is missing (NaN, NaT, NA) is null.

    Arrays, tensors and sets are lists, bytes their base64, dates, decimals and infinity their text. Raises DataError
    for a field that is lacking, with those there are, and for a value that JSON has no word for.
    """
    there = document.fields if text_field is None else {text_field: document.text, **document.fields}
    for field in names.values():
        if field not in there:
            fields = ", ".join(map(str, document.fields)) or "none"
            raise DataError(f'document {document.id}: no field "{field}" to keep; the fields there are: {fields}')
    kept = {}
    for name, field in names.items():
        try:
            text = clean_text(json.dumps(there[field], default=_plain, ensure_ascii=False))[0]
            kept[name] = json.loads(text, parse_constant=lambda name: None if name == "NaN" else name)
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f'document {document.id}: the field "{field}" ({type(there[field]).__name__}) cannot be kept, since '
                f"JSON has no word for what it holds ({error}): leave it out, or make text of it"
            ) from error
    return kept


def _plain(value: Any) -> Any:
    """A value that JSON does not know, as one that it knows. Raises TypeError where that would lose something."""
    if is_missing(value):
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, TEXTS) or type(value).__name__ in ("Period", "Interval"):  # of pandas
        return str(value)
    dates = isinstance(value, np.ndarray) and value.dtype.kind in "mM"  # tolist would make numbers of them
    plain = sorted(value, key=str) if isinstance(value, Set) else list(value) if dates else python_values(value)
    if type(plain) is type(value):
        raise TypeError(f"{type(value).__name__} {str(value)[:40]!r}")
    return plain
