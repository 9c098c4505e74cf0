"""Files that are read into an index: their documents are cut, encoded and written, some thousand tokens at a time."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from tqdm import tqdm

from longform.errors import InputError, MissingDependencyError
from longform_text.data.formats import Source
from longform_text.data.progress import hidden
from longform_text.search import store
from longform_text.search.ahead import Ahead
from longform_text.search.reading import Places, read_file
from longform_text.search.store import FileEntry, Passage

if TYPE_CHECKING:  # they import torch, for seconds
    from longform_text.inference.chunks import ChunkPlan, Reading
    from longform_text.inference.encoders import Encoder

TOGETHER = 2**14  # tokens that are encoded together, and then written: a killed process loses them at most
ANEW = -1  # size of a file that is looked at anew at each call: what kept it from being read is not in the file


class Found(NamedTuple):
    """A file as it is on the disk now, and its entry."""

    path: Path
    entry: FileEntry

    @property
    def waits(self) -> bool:
        """Whether it is still to be read, as a whole or in part."""
        return not (self.entry.whole or self.entry.reason)


def differs(entry: FileEntry, before: FileEntry | None) -> bool:
    """Whether a file has another content, or is read otherwise, than what of it is in the index."""
    return before is not None and (entry.key, entry.how) != (before.key, before.how)


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
        """What is still to be read of it, in parts that are encoded together."""
        readings, tokens = list[Any](), 0
        for reading in self.plan.readings:
            if max(reading.places) < self.done:
                continue
            readings.append(reading)
            tokens += len(reading.tokens.input_ids)
            if tokens >= TOGETHER and reading is not self.plan.readings[-1]:
                yield Part(self, readings, tokens, last=False)
                readings, tokens = [], 0
        yield Part(self, readings, tokens, last=True)

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
    """A file was read, as a ``whole`` or not; ``reason``: why it, or a part of it, is passed over."""

    file: str
    whole: bool
    reason: str
    anew: bool = False
    tokens: int = 0


class Model(Protocol):
    """What is asked of the index by what adds to it."""

    chunk_tokens: int
    title_weight: float
    seconds_left: float | None

    @property
    def encoder(self) -> "Encoder": ...
    def identity(self, there: dict[str, Any]) -> dict[str, Any]: ...
    def unit(self, vectors: np.ndarray) -> np.ndarray: ...


class Adding:
    """The ``waiting`` files, to be added to a ``database``, in which they are as in ``before``."""

    def __init__(
        self,
        model: Model,
        database: sqlite3.Connection,
        before: Mapping[str, FileEntry],
        waiting: Mapping[str, Found],
        text_field: str,
    ) -> None:
        self._model, self._database, self._waiting, self._text_field = model, database, waiting, text_field
        self._stale = {name for name, found in waiting.items() if differs(found.entry, before.get(name))}
        self._entries = {name: found.entry for name, found in waiting.items()}
        self._ahead = Ahead({name: (found.path.suffix, found.entry.size) for name, found in waiting.items()})
        self._titles = dict[str, np.ndarray]()

    def run(self, *, progress: bool) -> int:
        """Read all, and return the tokens that were read."""
        batch, tokens, began = list[Part | End](), 0, time.monotonic()
        with tqdm(
            total=self._ahead.total(), unit=" tokens", unit_scale=True, disable=hidden(progress) or not self._waiting
        ) as bar:
            for event in self._events():
                batch.append(event)
                tokens += event.tokens
                if tokens < TOGETHER:
                    continue
                self._write(batch, bar)
                batch, tokens, ahead = [], 0, self._ahead
                left = ahead.total() - ahead.tokens
                self._model.seconds_left = (time.monotonic() - began) * left / max(1, ahead.tokens)
            self._write(batch, bar)
        return self._ahead.tokens

    def _events(self) -> Iterator[Part | End]:
        """The parts of each document that is not in the index yet, and the end of each file.

        The smallest file of each kind comes first, so that the time that is left is soon known.
        """
        by_size = sorted(self._waiting.items(), key=lambda item: item[1].entry.size, reverse=True)
        small = {found.path.suffix: name for name, found in by_size}
        for name in dict.fromkeys([*small.values(), *self._waiting]):
            notes = list[str]()
            begun = None if name in self._stale else store.begun(self._database, name)
            for item in self._documents(name):
                if isinstance(item, End):
                    yield item._replace(reason=item.reason or "; ".join(notes))
                    continue
                notes += [item.note] if item.note else []
                document = Begun(name, item, self._plan(item.text), Places.of(item), *(begun or ()))
                begun = None
                yield from document.parts()

    def _documents(self, name: str) -> Iterator[Source | End]:
        """Documents of a file that are not in the index as a whole, and its end: whatever happens there is its own."""
        path, entry = self._waiting[name]
        try:
            for number, source in enumerate(read_file(path, name, self._text_field)):
                if number >= entry.documents:
                    yield source
            yield End(name, True, "")
        except Exception as error:  # libraries fail in all ways
            said = " ".join(str(error).split()) or type(error).__name__
            yield End(name, False, said, anew=isinstance(error, OSError | MissingDependencyError))

    @cached_property
    def _encoder(self) -> "Encoder":
        return self._model.encoder.for_documents()

    def _plan(self, text: str) -> "ChunkPlan":
        from longform_text.inference.chunks import chunk_plan, tokens_around

        how: Any = {"chunk_tokens": self._model.chunk_tokens, "boundaries": "sentences"}
        return chunk_plan(self._encoder, tokens_around(self._encoder), text, **how)

    def _write(self, batch: list[Part | End], bar: Any) -> None:
        """Encode the parts of a batch, and write it as a whole."""
        vectors = iter(self._encoded([each for each in batch if isinstance(each, Part)], bar))
        with store.changing(self._database):
            for event in batch:
                name = event.file if isinstance(event, End) else event.document.file
                if name in self._stale:
                    store.forget(self._database, [name])
                    self._stale.remove(name)
                if isinstance(event, End):
                    self._end(event)
                else:
                    self._append(event, next(vectors))
                store.put(self._database, {name: self._entries[name]})
        bar.total = self._ahead.total()
        bar.refresh()

    def _end(self, end: End) -> None:
        entry = replace(self._entries[end.file], whole=end.whole, reason=end.reason)
        self._entries[end.file] = replace(entry, size=ANEW) if end.anew else entry
        self._ahead.ended(end.file)

    def _append(self, part: Part, vectors: np.ndarray) -> None:
        database, document, entry = self._database, part.document, self._entries[part.document.file]
        if document.number is None:
            there = store.about(database)[0]
            store.put(database, {document.file: entry})
            store.identify(database, self._model.identity(there))
            source = document.source
            document.number = store.begin(database, document.file, source.id, source.title, source.unit)
        if len(vectors):
            store.add(database, document.number, document.passages(len(vectors)), vectors)
        self._ahead.read(document.file, int(document.plan.tokens[document.done :][: len(vectors)].sum()))
        document.done += len(vectors)
        if part.last:
            store.finish(database, document.number)
            self._entries[document.file] = replace(entry, documents=entry.documents + 1)

    def _encoded(self, parts: list[Part], bar: Any) -> Iterator[np.ndarray]:
        """Vectors (m, D) of the passages of each part, as they are searched."""
        if not parts:
            return
        from longform_text.inference.chunks import pooled
        from longform_text.inference.settings import DEFAULT_BATCH_TOKENS

        plans = [part.document.plan._replace(readings=part.readings) for part in parts]
        found = [dict[int, np.ndarray]() for _ in parts]
        for place, number, vector in pooled(self._encoder, plans, DEFAULT_BATCH_TOKENS):
            found[place][number] = vector
            bar.update(int(plans[place].tokens[number]))
        for part, own in zip(parts, found, strict=True):
            vectors = np.stack([own[number] for number in sorted(own)]) if own else np.empty((0, self._encoder.features))
            if not np.isfinite(vectors).all():
                raise InputError(f"document {part.document.source.id}: the model's result is NaN or infinite")
            yield self._titled(self._model.unit(self._encoder.finished(vectors)), part.document.source.title)

    def _titled(self, vectors: np.ndarray, title: str) -> np.ndarray:
        """The vectors, to which that of the title is added where titles have a weight."""
        if not self._model.title_weight or not title.strip():
            return vectors
        if title not in self._titles:
            self._titles[title] = self._model.unit(self._encoder.encode_document([title]))[0]
        return self._model.unit(vectors + self._model.title_weight * self._titles[title])
