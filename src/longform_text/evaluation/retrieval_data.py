"""Queries, documents, and which documents answer which query, from files or memory."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from longform.errors import DataError
from longform_text.data.given import InMemory, as_rows, python_values, source_of
from longform_text.data.records import Record, field, records_of, string_field
from longform_text.data.text import Document, identifier, read_documents


@dataclass(frozen=True)
class RetrievalData:
    """``relevant``: of each of ``questions``, the places of the right ones among ``documents``."""

    documents: list[Document]
    questions: list[str]
    relevant: list[set[int]]


def read_retrieval(
    queries: Any,
    documents: Any,
    *,
    query_field: str = "query",
    relevant_field: str = "relevant",
    id_field: str = "id",
    text_field: str = "text",
) -> RetrievalData:
    """Two files of records, or rows, tables, columns (queries, relevant) and (ids, texts) in memory.

    ``relevant_field``: the id, or list of ids, of a query's documents.
    Raises DataError for ids that occur twice or that no document has, and for texts that are none.
    """
    source = source_of(as_rows(documents, id_field, text_field))
    corpus = list(read_documents(source, text_field=text_field, id_field=id_field))
    places = {document.id: place for place, document in enumerate(corpus)}
    if len(places) < len(corpus):
        twice = next(name for name, count in Counter(document.id for document in corpus).items() if count > 1)
        where = source if isinstance(source, InMemory) else ", ".join(map(str, source))
        raise DataError(f'{where}: the {id_field} "{twice}" occurs twice: a document\'s is its own')
    asked = list(records_of(queries, query_field, relevant_field))
    questions = [string_field(row, query_field) for row in asked]
    return RetrievalData(corpus, questions, [_places(row, relevant_field, places) for row in asked])


def _places(row: Record, name: str, places: dict[str, int]) -> set[int]:
    """Rows of the documents whose ids a field holds: one id, a list, or a JSON list in a string."""
    value = field(row, name)
    if isinstance(value, str) and value.startswith("[") and value not in places:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f'{row.location}: the field "{name}" is {value[:40]!r}, neither the id of a document nor a JSON list '
                'of ids such as ["a", "b"]'
            ) from error
    value = python_values(value)
    ids = list(map(identifier, value if isinstance(value, list) else [value]))
    unknown = [each for each in ids if each not in places]
    if unknown or not ids:
        raise DataError(f"{row.location}: no document has the id {', '.join(unknown) or '(none given)'}")
    return {places[each] for each in ids}
