"""Index of documents in a folder: what is new is read, and a question finds documents and the passages that answer it.

Axes: N passages, G documents, D embedding size.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from tqdm import tqdm

from longform.errors import ConfigurationError, DataError, InputError, LongformError
from longform.files import RunFile, check_same, content_key, entries, file_key, only_writer, read_json
from longform_text.data.files import files_below, once
from longform_text.data.progress import hidden
from longform_text.data.text import Document, written
from longform_text.search.ahead import Ahead
from longform_text.search.question import QuestionReader
from longform_text.search.ranking import Hit, Searched
from longform_text.search.reading import READ, Source, is_read, read_file
from longform_text.search.store import WAY_OUT, FileEntry, Row, Store

if TYPE_CHECKING:  # they import torch, for seconds, and an index that is up to date answers without it
    from longform_text.inference.chunks import ChunkOutcome
    from longform_text.inference.encoders import Encoder

ABOUT, FORMAT = "index.json", 1
OTHERWISE = "another folder for the index (--index)"
READ_TOGETHER = 2**17  # characters of documents that are encoded together
SECONDS = 30  # of work that a killed process loses at most, beside what is encoded together


class Report(NamedTuple):
    """Result of an ``Index.add``: files that were read and removed, the tokens and seconds of that, and the files newly
    passed over with the reason.
    """

    read: int
    removed: int
    tokens: int
    seconds: float
    passed_over: dict[str, str]


class Found(NamedTuple):
    """A file as it is on the disk now, and its entry."""

    path: Path
    entry: FileEntry


class Index:
    """Documents of folders and files, searched by a question.

    ``folder``: of the index itself, which is made; its layout is in ``search.store``. ``encoder``: an Encoder,
    or what ``Encoder.from_pretrained`` takes. ``chunk_tokens``: tokens of a passage at most, and at most half of what
    the model takes. ``title_weight``: of the vector of a document's title, read by itself, that is added to each of its
    passages' vectors; both have length 1 before. ``device``: of an encoder that is loaded here. An index is opened with
    the encoder and numbers that it was made with. Raises ConfigurationError, naming both, for others, CheckpointError
    for a damaged index.
    """

    def __init__(
        self,
        folder: str | Path,
        encoder: "Encoder | str | Path" = "minilm-16k",
        *,
        chunk_tokens: int = 256,
        title_weight: float = 0.0,
        device: str = "auto",
    ) -> None:
        if chunk_tokens < 1:
            raise ConfigurationError(f"chunk_tokens is {chunk_tokens}; it is at least 1")
        if not 0 <= title_weight < math.inf:
            raise ConfigurationError(f"title_weight is {title_weight}; it is 0 or more, and finite")
        self.folder = Path(os.path.abspath(Path(folder).expanduser()))
        self._questions = QuestionReader.of(encoder) if isinstance(encoder, str | Path) else None
        self._source, self._device = encoder, device
        limit = self._questions.limit if self._questions else self.encoder.limit
        self.chunk_tokens = min(chunk_tokens, max(1, limit // 2))
        self.title_weight = title_weight
        self.seconds_left: float | None = None  # of an ``add`` in another thread; None: nothing is being read
        self.report = Report(0, 0, 0, 0.0, {})
        self._store = Store(self.folder)
        self.searched = Searched.of(self._store)
        self.refresh()
        if self._store.files:
            about = read_json(self.folder / ABOUT, way_out=WAY_OUT)
            check_same(self.folder, about, self._identity(), otherwise=OTHERWISE)

    @cached_property
    def encoder(self) -> "Encoder":
        """The encoder, loaded when it is first needed."""
        from longform_text.inference.encoders import Encoder

        if isinstance(self._source, Encoder):
            return self._source
        return Encoder.from_pretrained(self._source, device=self._device)

    def refresh(self) -> None:
        """Search what is on the disk now, which another process may have written."""
        for _ in range(3):  # a part may be joined with others between the list of files and its opening
            try:
                self._store = Store.read(self.folder)
                self.searched = Searched.of(self._store, self.searched)
                return
            except FileNotFoundError:
                continue
        self.searched = Searched.of(self._store, self.searched)

    @property
    def files(self) -> dict[str, FileEntry]:
        """State of every file by its name, relative to the folder that holds the index."""
        return dict(self._store.files)

    def __len__(self) -> int:
        """Passages."""
        return len(self.searched.rows)

    def add(self, *sources: str | Path, text_field: str = "text", progress: bool = False) -> Self:
        """Read what is new or changed in folders and files, forget what is gone there; ``report`` says what was done.

        Hidden files are passed over, others that cannot be read are named with the reason. ``text_field``: of records.
        What is read is searched at once, also from other threads; a killed process goes on at the next call. Raises
        ConfigurationError where another process is writing the index, DataError for sources that do not exist.
        """
        started = time.perf_counter()
        with only_writer(self.folder):
            run = RunFile(self.folder / ABOUT, self.folder, "index", OTHERWISE)
            run.open(self._identity(), begun=entries(self.folder, but=(ABOUT,)))
            self.refresh()
            before = self.files
            changed = self._changed(sources)
            tokens = self._read(changed, text_field, progress=progress) if changed else 0
            if self.files != before:
                self._store.tidy()
                self.searched = Searched.of(self._store, self.searched)
        seconds, known = time.perf_counter() - started, {name: entry.reason for name, entry in before.items()}
        passed = {name: entry.reason for name, entry in self.files.items() if entry.reason != known.get(name, "")}
        read, gone = sum(self.files[name].whole for name in changed), len(before.keys() - self.files.keys())
        self.report = Report(read, gone, tokens, seconds, {name: reason for name, reason in passed.items() if reason})
        return self

    def search(self, question: str, k: int = 10, *, passages: int = 1) -> list[Hit]:
        """The ``k`` best documents for a question, the best ``passages`` of each.

        Documents are ranked by their nearest passage and by BM25, passages by their vector and by BM25, and both ranks
        are fused. Raises InputError for an empty question, ConfigurationError for less than one document or passage.
        """
        if not question.strip():
            raise InputError("the question is empty")
        if k < 1 or passages < 1:
            raise ConfigurationError(f"k={k} and passages={passages}; both are at least 1")
        vector = self._questions.vector(question) if self._questions else None
        if vector is None:
            vector = self._unit(self.encoder.encode_query([question]))[0]
        return self.searched.best(question, vector, k, passages)

    def _identity(self) -> dict[str, Any]:
        """Facts that all passages of an index have in common."""
        return {
            "format": FORMAT,
            **self._model_identity(),
            "chunk_tokens": self.chunk_tokens,
            "title_weight": self.title_weight or None,  # older indexes say nothing, which is the same
        }

    def _model_identity(self) -> dict[str, Any]:
        """Facts of the encoder; the weights' key is the index's where both are of the same folder of the cache."""
        if self._questions and self._store.files:
            about = read_json(self.folder / ABOUT, way_out=WAY_OUT)
            if about.get("model") == self._questions.folder.name:
                own = {"pooling": None, "dimensions": self._questions.features, "prompt": ""}
                return {"model": about["model"], "weights_key": about.get("weights_key"), **own}
        from longform.pretrained.checkpoint_files import model_identity

        about = model_identity(self.encoder.model.name_or_path)
        return {
            "model": Path(about["model"] or "").name,
            "weights_key": about["weights_key"],
            "pooling": self.encoder.pooling,
            "dimensions": self.encoder.features,
            "prompt": self.encoder.for_documents().prompt,
        }

    def _unit(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors of length 1, but where the model's folder says that lengths count."""
        if self.encoder.folder.similarity == "dot":
            return vectors
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(min=1e-12)

    def _changed(self, sources: Sequence[str | Path]) -> dict[str, Found]:
        """Files of the sources that are to be read; those that are gone there are forgotten."""
        there = dict(self._scan(sources))
        gone = [name for name in self._store.files if name not in there and self._is_below(name, sources)]
        self._store.keep({name: found.entry for name, found in there.items() if found.entry.whole}, gone)
        return {name: found for name, found in there.items() if not found.entry.whole}

    def _scan(self, sources: Sequence[str | Path]) -> Iterator[tuple[str, Found]]:
        """Every file of the sources by its name, with its entry: that of the store where it has not changed."""
        paths = []
        for source in sources:
            place = os.path.abspath(Path(source).expanduser())
            if not os.path.exists(place):
                raise DataError(f'"{source}" does not exist')
            paths += files_below(place, but=(".",))
        for path in map(Path, once(paths)):
            name, about = written(os.path.relpath(path, self.folder.parent)), path.stat()
            known = self._store.files.get(name)
            if known and known.whole and (known.size, known.changed) == (about.st_size, about.st_mtime_ns):
                yield name, Found(path, known)
                continue
            key = content_key(file_key(path)) if is_read(path) else ""
            now = FileEntry(about.st_size, about.st_mtime_ns, key)
            if known and known.key == key:
                now = replace(known, size=now.size, changed=now.changed)
            yield name, Found(path, now)

    def _is_below(self, name: str, sources: Iterable[str | Path]) -> bool:
        path = Path(os.path.normpath(self.folder.parent / name))
        return any(path.is_relative_to(os.path.abspath(Path(source).expanduser())) for source in sources)

    def _read(self, changed: dict[str, Found], text_field: str, *, progress: bool) -> int:
        """Read, encode and write the documents of changed files; returns their tokens."""
        sizes = {name: found.entry.size if found.entry.key else 0 for name, found in changed.items()}
        ahead = Ahead({name: (changed[name].path.suffix, size) for name, size in sizes.items()})
        rows, vectors, touched = list[Row](), list[np.ndarray](), dict[str, FileEntry]()
        began = written_at = time.monotonic()
        encoder = self.encoder.for_documents()
        bar = tqdm(total=ahead.total(), unit=" tokens", unit_scale=True, disable=hidden(progress))
        with bar:
            for items in _together(_documents(changed, text_field)):
                sources = [item for _, item in items if isinstance(item, Source)]
                outcomes = iter(self._passages(encoder, sources))
                for name, item in items:
                    entry = touched.get(name, changed[name].entry)
                    if isinstance(item, str):
                        touched[name] = replace(entry, whole=not item, reason=item)
                        ahead.ended(name)
                        continue
                    found = next(outcomes)
                    rows += [_row_of(name, item, *span) for span in found.spans.tolist()]
                    vectors.append(found.vectors)
                    touched[name] = replace(entry, documents=entry.documents + 1, reason="")
                    ahead.read(name, int(found.tokens.sum()))
                bar.total = ahead.total()
                self.seconds_left = (time.monotonic() - began) * (bar.total - ahead.tokens) / max(1, ahead.tokens)
                bar.update(ahead.tokens - bar.n)
                if time.monotonic() > written_at + SECONDS:
                    self._write(rows, vectors, touched)
                    changed |= {name: changed[name]._replace(entry=self._store.files[name]) for name in touched}
                    rows, vectors, touched, written_at = [], [], {}, time.monotonic()
            self._write(rows, vectors, touched)
        self.seconds_left = None
        return ahead.tokens

    def _passages(self, encoder: "Encoder", sources: list[Source]) -> "Iterator[ChunkOutcome]":
        """The passages of documents, with their vectors as they are searched."""
        from longform_text.inference.chunks import chunk_outcomes

        titles = self._titles(encoder, sources)
        documents = [Document(source.id, source.text, {"title": source.title}) for source in sources]
        how: Any = {"chunk_tokens": self.chunk_tokens, "boundaries": "sentences"}
        for source, found in zip(sources, chunk_outcomes(encoder, documents, **how), strict=True):
            if not np.isfinite(found.vectors).all():
                raise InputError(f"document {source.id}: the model's result is NaN or infinite")
            vectors = self._unit(found.vectors)
            if source.title in titles:
                vectors = self._unit(vectors + self.title_weight * titles[source.title])
            yield found._replace(vectors=vectors)

    def _titles(self, encoder: "Encoder", sources: list[Source]) -> dict[str, np.ndarray]:
        """The vector (D,) of each title; none where titles have no weight."""
        titles = sorted({source.title for source in sources if source.title.strip()})
        if not titles or not self.title_weight:
            return {}
        return dict(zip(titles, self._unit(encoder.encode_document(titles)), strict=True))

    def _write(self, rows: list[Row], vectors: list[np.ndarray], touched: dict[str, FileEntry]) -> None:
        if rows:
            self._store.write(rows, np.concatenate(vectors), touched)
        else:
            self._store.keep(touched)
        self.searched = Searched.of(self._store, self.searched)


def _documents(changed: dict[str, Found], text_field: str) -> Iterator[tuple[str, Source | str]]:
    """The documents of each file that are not in the index yet, and after them "", or the reason why there are no more.

    The smallest file of each kind comes first, so that the time that is left is soon known.
    """
    small = {found.path.suffix: name for name, found in sorted(changed.items(), key=_size, reverse=True)}
    for name in dict.fromkeys([*small.values(), *changed]):
        path, entry = changed[name]
        try:
            if not is_read(path):
                raise DataError(f"of no kind that is read ({READ})")
            for number, source in enumerate(read_file(path, name, text_field)):
                if number >= entry.documents:
                    yield name, source
            yield name, ""
        except (LongformError, OSError) as error:
            yield name, str(error)


def _size(item: tuple[str, Found]) -> int:
    return item[1].entry.size


def _together(items: Iterable[tuple[str, Source | str]]) -> Iterator[list[tuple[str, Source | str]]]:
    """Items in lists, of so many characters as are encoded together."""
    part, characters = [], 0
    for name, item in items:
        part.append((name, item))
        characters += len(item.text) if isinstance(item, Source) else 0
        if characters >= READ_TOGETHER:
            yield part
            part, characters = [], 0
    yield part


def _row_of(file: str, source: Source, start: int, end: int) -> Row:
    place = source.place(start) or f"characters {start}-{end}"
    return Row(file, source.id, source.title, place, start, end, source.text[start:end])
