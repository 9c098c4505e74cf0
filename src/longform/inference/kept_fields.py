"""Fields of documents' records that prediction and embedding carry along into their output."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from longform.data.text import Document, clean_text
from longform.errors import ConfigurationError, DataError

RESULTS = frozenset(
    ("id", "chunk", "start", "end", "embedding", "label", "labels", "score", "scores", "tokens", "truncated")
)  # fields that records of ours have themselves


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
        found[name] = field or name
    return found


def kept_fields(document: Document, names: Mapping[str, str], *, text_field: str | None) -> dict[str, Any]:
    """The values of a document's kept fields, as JSON can hold them: NaN is null, a date its text.

    Raises DataError, with the fields there are, where one is lacking.
    """
    there = document.fields if text_field is None else {text_field: document.text, **document.fields}
    for field in names.values():
        if field not in there:
            fields = ", ".join(map(str, document.fields)) or "none"
            raise DataError(f'document {document.id}: no field "{field}" to keep; the fields there are: {fields}')
    return {name: _as_json(there[field]) for name, field in names.items()}


def _as_json(value: Any) -> Any:
    text = clean_text(json.dumps(value, default=str, ensure_ascii=False))[0]
    return json.loads(text, parse_constant=lambda _: None)
