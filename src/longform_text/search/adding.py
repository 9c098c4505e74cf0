"""Files that are read into an index: their documents are cut, encoded and written, some thousand tokens at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longform.errors import InputError, MissingDependencyError
from longform_text.data.files import reason_of
from longform_text.data.formats import Source
from longform_text.search import store
from longform_text.search.model import Model
from longform_text.search.reading import Places, read_file
from longform_text.search.store import ANEW, FileEntry, Passage

if TYPE_CHECKING:  # it imports torch, for seconds
    from longform_text.inference.chunks import ChunkPlan, Reading

TOGETHER = 2**14  # tokens that are encoded together, and then written: a killed process loses them at most


class Scan(NamedTuple):
    """Files that are new, changed or not read to their end, and their ``paths``; those that are gone; remarks."""

    changed: dict[str, FileEntry]
    paths: dict[str, Path]
    gone: list[str]
    remarks: tuple[str, ...]


class Part(NamedTuple):
    """Passages of a ``document`` that the model reads together, in one ``reading`` of the ``plan``."""

    document: Source
    plan: "ChunkPlan"
    reading: "Reading"
    passages: list[Passage]


Step = tuple[str, FileEntry, Part | None]  # a file, its entry after a part of it, and the part, if any


class Adding:
    """The adding of what a ``scan`` found to a ``database``, in which files are as in ``before``."""

    def __init__(self, model: Model, database: Connection, before: Mapping[str, FileEntry], scan: Scan) -> None:
        self._model, self._database, self._scan = model, database, scan
        self._stale = {name for name, entry in scan.changed.items() if name in before and entry.is_new(before[name])}
        self._bytes = self._left = sum(entry.size for entry in scan.changed.values() if entry.waits)  # all; to be read
        self._planned = self.tokens = 0  # tokens of what was read; those that are encoded

    def total(self) -> int:
        """Tokens of all files, those to come as many a byte as there were so far."""
        return self._planned + self._planned * self._left // max(1, self._bytes - self._left)

    def run(self, text_field: str, told: Callable[[int], None]) -> None:
        """Read all; ``told`` is called with the tokens of each passage that is encoded."""
        batch, tokens = list[Step](), 0
        for name, entry, part in self._steps(text_field):
            batch.append((name, entry, part))
            tokens += len(part.reading.tokens.input_ids) if part else 0
            if tokens >= TOGETHER:
                self._write(batch, told)
                batch, tokens = [], 0
        self._write(batch, told)

    def _steps(self, text_field: str) -> Iterator[Step]:
        """The parts of each document that are not in the index yet, and the end of each file."""
        for name, entry in self._scan.changed.items():
            if not entry.waits:
                yield name, entry, None
                continue
            after = self._left - entry.size
            begun = 0 if name in self._stale else store.begun(self._database, name)
            for item in self._documents(name, entry.documents, text_field):
                if isinstance(item, dict):
                    self._left = after
                    yield name, entry._replace(**item), None
                    continue
                plan, places = self._model.plan(item.text), Places.of(item)
                self._left = max(after, self._left - len(item.text))
                self._planned += int(plan.tokens[begun:].sum())
                for reading in plan.readings:
                    if max(reading.places) < begun:
                        continue
                    spans = plan.spans[[*reading.places]].tolist()
                    passages = [Passage(start, end, *places.at(start), item.text[start:end]) for start, end in spans]
                    entry = entry._replace(documents=entry.documents + (reading is plan.readings[-1]))
                    yield name, entry, Part(item, plan, reading, passages)
                begun = 0

    def _documents(self, name: str, first: int, text_field: str) -> Iterator[Source | dict[str, Any]]:
        """Documents of a file from the ``first`` on, and what its entry has at its end: whatever happens is its own."""
        notes = list[str]()
        try:
            for document in islice(read_file(self._scan.paths[name], name, text_field), first, None):
                notes += [document.note] if document.note else []
                yield document
        except Exception as error:  # libraries fail in all ways
            anew = {"size": ANEW} if isinstance(error, OSError | MissingDependencyError) else {}
            yield {"reason": reason_of(error), **anew}
        else:
            yield {"whole": True, "reason": "; ".join(notes)}

    def _write(self, batch: Sequence[Step], told: Callable[[int], None]) -> None:
        """Encode the parts of a batch, and write it as a whole."""
        parts = [part for *_, part in batch if part]
        vectors = iter(self._encoded(parts, told))
        with store.changing(self._database):
            if parts:
                store.identify(self._database, self._model.identity(store.about(self._database)[0]))
            for name, entry, part in batch:
                if name in self._stale:
                    store.forget(self._database, name)
                    self._stale.remove(name)
                if part:
                    ends = {"first": 0 in part.reading.places, "last": part.reading is part.plan.readings[-1]}
                    store.append(self._database, name, part.document, part.passages, next(vectors), **ends)
                store.put(self._database, name, entry)

    def _encoded(self, parts: Sequence[Part], told: Callable[[int], None]) -> list[np.ndarray]:
        """Vectors (m, D) of the passages of each part, as they are searched."""
        if not parts:
            return []
        from longform_text.inference.chunks import pooled

        found = [list[np.ndarray]() for _ in parts]
        plans = [part.plan._replace(readings=[part.reading]) for part in parts]
        for place, number, vector in pooled(self._model.documents, plans):
            found[place].append(vector)
            tokens = int(plans[place].tokens[number])
            self.tokens += tokens
            told(tokens)
        for part, vectors in zip(parts, found, strict=True):
            if not np.isfinite(vectors).all():
                raise InputError(f"document {part.document.id}: the model's result is NaN or infinite")
        return [self._model.passages(np.stack(vectors)) for vectors in found]
