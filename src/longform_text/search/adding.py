"""Files that are read into an index: their documents are cut, encoded and written, some thousand tokens at a time."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
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


@dataclass
class Begun:
    """A document of a ``file`` that is being read: ``plan`` has its passages, of which ``done`` are in the index.

    ``number``: its own in the index, None before it is there.
    """

    file: str
    source: Source
    plan: "ChunkPlan"
    places: Places
    number: int | None = None
    done: int = 0

    def parts(self) -> "Iterator[Part]":
        """Parts that are still to be read, each of which is encoded together."""
        left = [reading for reading in self.plan.readings if max(reading.places) >= self.done]
        tokens, first = 0, 0
        for at, reading in enumerate(left):
            tokens += len(reading.tokens.input_ids)
            if tokens >= TOGETHER and at + 1 < len(left):
                yield Part(self, left[first : at + 1], tokens, last=False)
                tokens, first = 0, at + 1
        yield Part(self, left[first:], tokens, last=True)

    def passages(self, count: int) -> list[Passage]:
        """The next passages, as the index has them."""
        spans = self.plan.spans[self.done : self.done + count].tolist()
        return [Passage(start, end, *self.places.at(start), self.source.text[start:end]) for start, end in spans]


class Part(NamedTuple):
    """Runs of a document's tokens that the model reads, ``tokens`` together; ``last``: the document ends with them."""

    document: Begun
    readings: "list[Reading]"
    tokens: int
    last: bool


class End(NamedTuple):
    """A file was read; ``facts``: fields of its entry that are known now."""

    file: str
    facts: dict[str, Any]
    tokens: int = 0


class Adding:
    """The ``waiting`` files at their ``paths``, to be added to a ``database``, in which they are as in ``before``."""

    def __init__(
        self,
        model: Model,
        database: sqlite3.Connection,
        before: Mapping[str, FileEntry],
        waiting: Mapping[str, FileEntry],
        paths: Mapping[str, Path],
    ) -> None:
        self._model, self._database, self._entries, self._paths = model, database, dict(waiting), paths
        self._stale = {name for name, entry in waiting.items() if entry.differs(before.get(name))}
        self._left = {name: entry.size for name, entry in waiting.items()}  # bytes
        self._planned, self._seen, self.tokens = 1, 4, 0  # tokens of so many bytes; tokens that are encoded

    def total(self) -> int:
        """Tokens of all files, those to come as many a byte as there were so far."""
        return self._planned + self._planned * sum(self._left.values()) // self._seen

    def _pass(self, name: str, characters: int, tokens: int = 0) -> None:
        """Count what was read of a file."""
        taken = min(characters, self._left[name])
        self._left[name] -= taken
        self._seen += taken
        self._planned += tokens

    def run(self, text_field: str, told: Callable[[int], None]) -> None:
        """Read all; ``told`` is called with the tokens of each passage that is encoded."""
        batch, tokens = list[Part | End](), 0
        for event in self._events(text_field):
            batch.append(event)
            tokens += event.tokens
            if tokens >= TOGETHER:
                self._write(batch, told)
                batch, tokens = [], 0
        self._write(batch, told)

    def _events(self, text_field: str) -> Iterator[Part | End]:
        """The parts of each document that is not in the index yet, and the end of each file."""
        for name in list(self._entries):
            notes, begun = list[str](), None if name in self._stale else store.begun(self._database, name)
            for item in self._documents(name, text_field):
                if isinstance(item, End):
                    self._pass(name, self._left[name])
                    yield item._replace(facts={"reason": "; ".join(notes)} | item.facts)
                    continue
                notes += [item.note] if item.note else []
                document = Begun(name, item, self._model.plan(item.text), Places.of(item), *(begun or ()))
                self._pass(name, len(item.text), int(document.plan.tokens[document.done :].sum()))
                begun = None
                yield from document.parts()

    def _documents(self, name: str, text_field: str) -> Iterator[Source | End]:
        """Documents of a file that are not in the index as a whole, and its end: whatever happens there is its own."""
        try:
            yield from islice(read_file(self._paths[name], name, text_field), self._entries[name].documents, None)
        except Exception as error:  # libraries fail in all ways
            anew = {"size": ANEW} if isinstance(error, OSError | MissingDependencyError) else {}
            yield End(name, {"reason": reason_of(error), **anew})
        else:
            yield End(name, {"whole": True})

    def _write(self, batch: list[Part | End], told: Callable[[int], None]) -> None:
        """Encode the parts of a batch, and write it as a whole."""
        vectors = iter(self._encoded([each for each in batch if isinstance(each, Part)], told))
        with store.changing(self._database):
            for event in batch:
                name = event.file if isinstance(event, End) else event.document.file
                if name in self._stale:
                    store.forget(self._database, [name])
                    self._stale.remove(name)
                entry = self._entries[name]
                if isinstance(event, Part):
                    self._append(event, next(vectors))
                    entry = entry._replace(documents=entry.documents + event.last)
                else:
                    entry = entry._replace(**event.facts)
                self._entries[name] = entry
                store.put(self._database, {name: entry})

    def _append(self, part: Part, vectors: np.ndarray) -> None:
        document = part.document
        if document.number is None:
            store.identify(self._database, self._model.identity(store.about(self._database)[0]))
            document.number = store.begin(self._database, document.file, document.source)
        if len(vectors):
            store.add(self._database, document.number, document.passages(len(vectors)), vectors)
        document.done += len(vectors)
        if part.last:
            store.finish(self._database, document.number)

    def _encoded(self, parts: list[Part], told: Callable[[int], None]) -> Iterator[np.ndarray]:
        """Vectors (m, D) of the passages of each part, as they are searched."""
        if not parts:
            return
        from longform_text.inference.chunks import pooled

        plans = [part.document.plan._replace(readings=part.readings) for part in parts]
        found = [dict[int, np.ndarray]() for _ in parts]
        for place, number, vector in pooled(self._model.documents, plans):
            found[place][number] = vector
            self.tokens += int(plans[place].tokens[number])
            told(int(plans[place].tokens[number]))
        for part, own in zip(parts, found, strict=True):
            vectors = np.stack([own[number] for number in sorted(own)]) if own else np.empty((0, 0), np.float32)
            if not np.isfinite(vectors).all():
                raise InputError(f"document {part.document.source.id}: the model's result is NaN or infinite")
            yield self._model.passages(vectors) if own else vectors
