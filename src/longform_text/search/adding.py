"""Files that are read into an index: their documents are cut, encoded and written, some thousand tokens at a time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from longform.errors import MissingDependencyError
from longform_text.data.files import reason_of
from longform_text.data.formats import Source
from longform_text.search import store
from longform_text.search.model import Model
from longform_text.search.reading import Places, read_file
from longform_text.search.store import ANEW, FileEntry, Part

if TYPE_CHECKING:  # it imports torch, for seconds
    from longform_text.inference.chunks import ChunkPlan

TOGETHER = 2**14  # tokens that are encoded together, and then written: a killed process loses them at most


class Scan(NamedTuple):
    """Files that are new, changed or not read to their end, and their ``paths``; those that are gone; remarks."""

    changed: dict[str, FileEntry]
    paths: dict[str, Path]
    gone: list[str]
    remarks: tuple[str, ...]


Step = tuple[str, FileEntry, Part | None, "ChunkPlan | None"]  # a file's entry after a part of it, and how that is read


class Adding:
    """The adding of what a ``scan`` found to a ``database``, in which files are as in ``before``."""

    def __init__(self, model: Model, database: Connection, before: Mapping[str, FileEntry], scan: Scan) -> None:
        self._model, self._database, self._scan = model, database, scan
        changed = scan.changed.items()
        self._stale = {name for name, entry in changed if name in before and entry[2:] != before[name][2:]}
        self._bytes = self._left = sum(entry.size for _, entry in changed if entry.waits)  # all; those to be read
        self._planned = self.tokens = 0  # of what was read; those that are encoded
        self._began = time.monotonic()
        self.seconds_left: float | None = None

    def run(self, text_field: str, bar: tqdm) -> None:
        """Forget what is gone and read what is new; the ``bar`` shows tokens."""
        with store.changing(self._database):
            for name in self._scan.gone:
                store.forget(self._database, name)
        batch, tokens = list[Step](), 0
        for name, entry, part, plan in self._steps(text_field):
            batch.append((name, entry, part, plan))
            tokens += len(plan.readings[0].tokens.input_ids) if plan else 0
            if tokens >= TOGETHER:
                self._write(batch, bar)
                batch, tokens = [], 0
        self._write(batch, bar)

    def _steps(self, text_field: str) -> Iterator[Step]:
        """The parts of each document that are not in the index yet, and the end of each file."""
        for name, entry in self._scan.changed.items():
            if not entry.waits:
                yield name, entry, None, None
                continue
            after = self._left - entry.size
            begun = 0 if name in self._stale else store.begun(self._database, name)
            for item in self._documents(name, entry.documents, text_field):
                if isinstance(item, dict):
                    self._left = after
                    yield name, entry._replace(**item), None, None
                    continue
                plan, places = self._model.plan(item.text), Places.of(item)
                self._left = max(after, self._left - len(item.text))
                self._planned += int(plan.tokens[begun:].sum())
                for reading in plan.readings:
                    if max(reading.places) < begun:
                        continue
                    last = reading is plan.readings[-1]
                    part = Part(item, places, plan.spans[[*reading.places]], 0 in reading.places, last)
                    entry = entry._replace(documents=entry.documents + last)
                    yield name, entry, part, plan._replace(readings=[reading])
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

    def _write(self, batch: Sequence[Step], bar: tqdm) -> None:
        """Encode the parts of a batch, and write it as a whole."""
        plans = [plan for *_, plan in batch if plan]
        vectors = iter(self._encoded(plans, bar))
        with store.changing(self._database):
            if plans:
                store.identify(self._database, self._model.identity(store.about(self._database)[0]))
            for name, entry, part, _ in batch:
                if name in self._stale:
                    store.forget(self._database, name)
                    self._stale.remove(name)
                if part:
                    store.append(self._database, name, part, next(vectors))
                store.put(self._database, name, entry)

    def _encoded(self, plans: Sequence["ChunkPlan"], bar: tqdm) -> list[np.ndarray]:
        """Vectors (m, D) of the passages of each plan, as they are searched."""
        if not plans:
            return []
        from longform_text.inference.chunks import pooled

        found = [list[np.ndarray]() for _ in plans]
        for place, number, vector in pooled(self._model.documents, plans):
            found[place].append(vector)
            tokens = int(plans[place].tokens[number])
            self.tokens += tokens
            # Tokens of files to come are as many a byte as there were so far.
            bar.total = self._planned + self._planned * self._left // max(1, self._bytes - self._left)
            bar.update(tokens)
            self.seconds_left = (time.monotonic() - self._began) * (bar.total - self.tokens) / self.tokens
        return [self._model.passages(np.stack(vectors)) for vectors in found]
