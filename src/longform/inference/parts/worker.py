"""Worker that makes one part after another: a loaded model, on any machine that sees inputs and output folder."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longform.data.part_plans import Part
from longform.data.part_reading import part_documents
from longform.data.storage import atomic_write
from longform.data.text import Document, Reader, ReadReport
from longform.errors import InputError, LongformError
from longform.inference.kept_fields import kept_fields
from longform.inference.parts.output import PART
from longform.inference.prepared import Prepared
from longform.inference.resumable import count_records, write_parquet
from longform.runs.digest import file_key

OF_A_DOCUMENT = (LongformError, RuntimeError, IndexError, MemoryError)  # what a document may be the cause of


class PartWorker:
    """A model that makes parts of the folder ``place``; ``skip``: rows that fail are left out, and named.

    ``prepare`` loads the model, which is there under the name ``model``.
    """

    def __init__(self, prepare: Callable[[], Prepared], model: str, place: Path, *, skip: bool) -> None:
        self._prepared = prepare()
        self._model, self._place, self._skip = model, place, skip

    def identity(self) -> dict[str, Any]:
        """Facts that all workers of a run have in common, and a run that goes on with it."""
        return self._prepared.identity(self._model)

    def work(self, part: Part) -> dict[str, Any]:
        """Write ``part`` in its place, and give its line of the manifest.

        Raises, for a row that fails, unless rows are skipped.
        """
        report, failed = ReadReport(), _Failed(self._skip)
        reader = Reader(**self._prepared.reading, report=report)
        documents = list(part_documents(part, reader, failed.add))
        records = self._together(documents, failed)
        path = self._place / (part.name + PART)
        if records:
            with atomic_write(path, "wb") as file:
                write_parquet(
                    lambda: iter(records), file, vector_dtype=self._prepared.settings.vector_dtype, kept_as_text=True
                )
        counts = asdict(report) | count_records(records, cut := []) | {"failed": failed.rows}
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
            "failed": failed.listed,
        }

    def _together(self, documents: list[Document], failed: "_Failed") -> list[dict[str, Any]]:
        try:
            return list(self._records(documents))
        except OF_A_DOCUMENT as error:
            if self._skip:
                return [record for one in documents for record in self._of_one(one, failed)]
            if isinstance(error, LongformError):
                raise
            raise InputError(
                f"one of the {len(documents)} documents from {documents[0].id} to {documents[-1].id} failed: "
                f"{_said(error)}; on_error=skip (--on-error skip) leaves it out"
            ) from error

    def _of_one(self, document: Document, failed: "_Failed") -> Iterator[dict[str, Any]]:
        try:
            found = list(self._records([document]))
        except OF_A_DOCUMENT as error:
            failed.add(document.id, error)
        else:
            yield from found

    def _records(self, documents: list[Document]) -> Iterator[dict[str, Any]]:
        prepared, keep = self._prepared, self._prepared.keep
        kept = [kept_fields(each, keep, text_field=prepared.settings.text_field) for each in documents]
        results = prepared.results(iter(documents), _nothing)
        for document, fields, made in zip(documents, kept, results, strict=True):
            yield from prepared.records(document.id, {name: _text(value) for name, value in fields.items()}, made)


class _Failed:
    """Rows that failed, and why; without ``skip`` the first one raises."""

    def __init__(self, skip: bool) -> None:
        self._skip = skip
        self.listed: list[dict[str, str]] = []

    @property
    def rows(self) -> int:
        return len(self.listed)

    def add(self, place: str, error: Exception) -> None:
        if not self._skip:
            raise error
        self.listed.append({"row": place, "reason": _said(error)})


def _said(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _text(value: Any) -> str | None:
    """A kept value as a column of texts has it: a text as it is, anything else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _nothing(count: int) -> None:
    """Ignore the number of documents that are ready: their part counts as a whole."""
