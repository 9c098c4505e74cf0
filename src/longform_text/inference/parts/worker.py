"""Worker that makes one part after another: a loaded model, on any machine that sees inputs and output folder."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longform.digests import file_key
from longform.errors import InputError, LongformError
from longform.files import atomic_write
from longform_text.data.parts import Part, part_documents
from longform_text.data.text import Document, Reader, ReadReport
from longform_text.inference.kept_fields import kept_fields
from longform_text.inference.parts.output import PART
from longform_text.inference.prepared import Prepared
from longform_text.inference.resumable import count_records, write_parquet

OF_A_DOCUMENT = (LongformError, RuntimeError, IndexError, MemoryError)  # what a document may be the cause of


class PartWorker:
    """A model that makes parts of the folder ``place``; ``skip``: rows that fail are left out, and named.

    ``prepare`` loads ``model``. ``identity``: facts that all workers of a run have in common, and a run that goes on
    with it.
    """

    def __init__(self, prepare: Callable[[str], Prepared], model: str, place: Path, *, skip: bool) -> None:
        self._prepared = prepare(model)
        self._place, self._skip = place, skip
        self.identity = self._prepared.identity(model)

    def made(self, parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
        """The line of the manifest of each part, in order."""
        return map(self.work, parts)

    def work(self, part: Part) -> dict[str, Any]:
        """Write ``part`` in its place, and give its line of the manifest.

        Raises, for a row that fails, unless rows are skipped.
        """
        failed: list[dict[str, str]] = []

        def refuse(row: str, error: Exception) -> None:
            if not self._skip:
                raise error
            failed.append({"row": row, "reason": _said(error)})

        report, cut = ReadReport(), list[str]()
        reader = Reader(**self._prepared.reading, report=report)
        records = self._together(list(part_documents(part, reader, refuse)), refuse)
        path = self._place / (part.name + PART)
        if records:
            with atomic_write(path, "wb") as file:
                write_parquet(
                    lambda: iter(records), file, vector_dtype=self._prepared.settings.vector_dtype, kept_as_text=True
                )
        counts = asdict(report) | count_records(records, cut) | {"failed": len(failed)}
        counts.pop("passed_over")  # of whole folders
        return {
            "part": part.name,
            "file": part.file.name,
            "first": part.first,
            "rows": part.rows,
            "input": part.digest,
            "counts": counts,
            "digest": file_key(path) if records else None,
            "cut": cut,
            "failed": failed,
        }

    def _together(self, documents: list[Document], refuse: Callable[[str, Exception], None]) -> list[dict[str, Any]]:
        """The records of all documents; where that fails and rows are skipped, of each document that does not."""
        try:
            return list(self._records(documents))
        except OF_A_DOCUMENT as error:
            if not self._skip and isinstance(error, LongformError):
                raise
            if not self._skip:
                raise InputError(
                    f"one of the {len(documents)} documents from {documents[0].id} to {documents[-1].id} failed: "
                    f"{_said(error)}; on_error=skip (--on-error skip) leaves it out"
                ) from error
            if len(documents) == 1:
                refuse(documents[0].id, error)
                return []
        return [record for document in documents for record in self._together([document], refuse)]

    def _records(self, documents: list[Document]) -> Iterator[dict[str, Any]]:
        prepared, keep = self._prepared, self._prepared.keep
        kept = [kept_fields(each, keep, text_field=prepared.settings.text_field) for each in documents]
        results = prepared.results(iter(documents), _nothing)
        for document, fields, made in zip(documents, kept, results, strict=True):
            yield from prepared.records(document.id, {name: _text(value) for name, value in fields.items()}, made)


def _said(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _text(value: Any) -> str | None:
    """A kept value as a column of texts has it: a text as it is, anything else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _nothing(count: int) -> None:
    """Ignore the number of documents that are ready: their part counts as a whole."""
