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

from longform.errors import ConfigurationError, DataError, InputError
from longform.files import check_same, file_key, only_writer
from longform_text.data.files import files_below, once
from longform_text.data.text import written
from longform_text.search import store
from longform_text.search.adding import ANEW, Adding, Found, differs
from longform_text.search.question import QuestionReader
from longform_text.search.ranking import Hit, Searched, place_of
from longform_text.search.reading import READ, is_read, option_of
from longform_text.search.store import FileEntry, Store

if TYPE_CHECKING:  # they import torch, for seconds, and an index that is up to date answers without it
    from longform_text.inference.encoders import Encoder

OTHERWISE = "another folder for the index (--index)"
WHY_EMPTY = "Is a disk not there? To forget them, delete the folder of the index."


class Report(NamedTuple):
    """Result of an ``Index.add``: files that were read and removed, the tokens and seconds of that, the files newly
    passed over, in whole or in part, with the reason, and what else is to be said.
    """

    read: int = 0
    removed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    passed_over: dict[str, str] = {}  # noqa: RUF012 (never changed)
    remarks: tuple[str, ...] = ()


class Scan(NamedTuple):
    """Files of the sources by name, names of those that are gone there, and remarks."""

    there: dict[str, Found]
    gone: list[str]
    remarks: tuple[str, ...]


class Index:
    """Documents of folders and files, searched by a question.

    ``folder``: of the index itself, which is made; its layout is in ``longform_text.search.store``. ``encoder``: an
    Encoder, or what ``Encoder.from_pretrained`` takes. ``chunk_tokens``: tokens of a passage at most, and at most half
    of what the model takes. ``title_weight``: of the vector of a document's title, read by itself, that is added to
    each of its passages' vectors; both have length 1 before. ``device``: of an encoder that is loaded here. An index is
    opened with the encoder and numbers that it was made with. Raises ConfigurationError, naming both, for others,
    CheckpointError for a damaged index.
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
        self.report = Report()
        self._store, self._searched = Store(self.folder), None
        with self._store.reading() as database:
            self.check(store.about(database)[0])

    @cached_property
    def encoder(self) -> "Encoder":
        """The encoder, loaded when it is first needed."""
        from longform_text.inference.encoders import Encoder

        if isinstance(self._source, Encoder):
            return self._source
        return Encoder.from_pretrained(self._source, device=self._device)

    @property
    def files(self) -> dict[str, FileEntry]:
        """State of every file by its name, relative to the folder that holds the index."""
        with self._store.reading() as database:
            return store.entries_of(database)

    def passed_over(self) -> dict[str, str]:
        """Why files, or parts of them, are not searched, by name."""
        return {name: entry.reason for name, entry in self.files.items() if entry.reason}

    def __len__(self) -> int:
        """Passages."""
        with self._store.reading() as database:
            return database.execute("SELECT count(*) FROM passages").fetchone()[0]

    def add(self, *sources: str | Path, text_field: str = "text", progress: bool = False) -> Self:
        """Read what is new or changed in folders and files, forget what is gone there; ``report`` says what was done.

        Hidden files are passed over, others that cannot be read are named with the reason. A folder in which nothing is
        left keeps its files in the index: it may be a disk that is not there. ``text_field``: of records. What is read
        is searched at once, also from other threads; a killed process goes on at the next call. Raises
        ConfigurationError where another process is writing the index, or nothing can be written, DataError for sources
        that do not exist.
        """
        started = time.perf_counter()
        self.report = Report()
        before = self.files
        scan = self._scan(sources, before, text_field)
        if scan.gone or any(found.entry != before.get(name) for name, found in scan.there.items()):
            self._write(sources, text_field, started, progress=progress)
        else:
            self.report = Report(seconds=time.perf_counter() - started, remarks=scan.remarks)
        return self

    def search(
        self, question: str, k: int = 10, *, passages: int = 1, within: Sequence[str | Path] | None = None
    ) -> list[Hit]:
        """The ``k`` best documents for a question, the best ``passages`` of each.

        Documents are ranked by their nearest passage and by BM25, passages by their vector and by BM25, and both ranks
        are fused. ``within``: folders and files that are searched; None: all. Raises InputError for an empty question,
        ConfigurationError for less than one document or passage.
        """
        question = question.encode("utf-8", "replace").decode()  # bytes of a terminal need not be UTF-8
        if not question.strip():
            raise InputError("the question is empty")
        if k < 1 or passages < 1:
            raise ConfigurationError(f"k={k} and passages={passages}; both are at least 1")
        vector = self._questions.vector(question) if self._questions else None
        if vector is None:
            vector = self.unit(self.encoder.encode_query([question]))[0]
        with self._store.reading() as database:
            searched = self._searched = Searched.of(database, self._searched)
            files = None if within is None else {*self._below(store.entries_of(database), within)}
            return searched.best(database, question, vector, k, passages, files)

    def document(self, name: str) -> tuple[str, list[tuple[str, str]]]:
        """The title of a document, and the place and text of each of its passages, in order; none where it is not."""
        query = """SELECT title, unit, number, start, "end", text FROM documents JOIN passages ON document = documents.id
            WHERE documents.name = ? ORDER BY passages.id"""
        with self._store.reading() as database:
            rows = database.execute(query, (name,)).fetchall()
        return (rows[0][0] if rows else ""), [(place_of(*place), text) for _, *place, text in rows]

    def check(self, identity: dict[str, Any]) -> None:
        """Raise ConfigurationError where the index was made with another encoder, or other numbers."""
        if identity:
            check_same(self.folder, identity, self.identity(identity), otherwise=OTHERWISE)

    def identity(self, there: dict[str, Any]) -> dict[str, Any]:
        """Facts that all passages of an index have in common; ``there``: those of the index."""
        numbers = {"chunk_tokens": self.chunk_tokens, "title_weight": self.title_weight or None}
        if self._questions and there.get("model") == self._questions.folder.name:
            # Of the same folder of the cache, so that its weights are the same.
            own = {"pooling": None, "dimensions": self._questions.features, "prompt": ""}
            return {"model": there["model"], "weights_key": there.get("weights_key"), **own, **numbers}
        from longform.pretrained.checkpoint_files import model_identity

        about = model_identity(self.encoder.model.name_or_path)
        return {
            "model": Path(about["model"] or "").name,
            "weights_key": about["weights_key"],
            "pooling": self.encoder.pooling,
            "dimensions": self.encoder.features,
            "prompt": self.encoder.for_documents().prompt,
            **numbers,
        }

    def unit(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors of length 1, but where the model's folder says that lengths count."""
        if self.encoder.folder.similarity == "dot":
            return vectors
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(min=1e-12)

    def _below(self, names: Iterable[str], places: Iterable[str | Path]) -> Iterator[str]:
        """Those of the ``names`` that are of files in the ``places``, or of these themselves."""
        above = [os.path.abspath(Path(place).expanduser()) for place in places]
        for name in names:
            path = os.path.normpath(self.folder.parent / name)
            if any(path == place or path.startswith(os.path.join(place, "")) for place in above):
                yield name

    def _scan(self, sources: Sequence[str | Path], known: dict[str, FileEntry], text_field: str) -> Scan:
        """What is in the sources; the entries of files that have not changed are the ``known`` ones."""
        paths, gone, remarks, unread = list[str](), set[str](), list[str](), dict[str, str]()
        for source in sources:
            place = os.path.abspath(Path(source).expanduser())
            if not os.path.exists(place):
                raise DataError(f'"{place}" does not exist')
            found, own = files_below(place, but=(".",), unread=unread), {*self._below(known, [place])}
            paths += found
            if found or place in unread or not own:
                gone |= own
            else:
                remarks.append(f'"{place}" is empty: its {len(own):,} files stay in the index. {WHY_EMPTY}')
        entries = {path: FileEntry(ANEW, 0, "", reason=reason) for path, reason in unread.items()}
        for path in once(paths):
            if not Path(path).is_relative_to(self.folder) and (entry := self._entry(path, known, text_field)):
                entries[path] = entry
        there = {self._name(path): Found(Path(path), entry) for path, entry in entries.items()}
        kept = {*self._below(known, [path for path in unread if os.path.isdir(path)])}
        return Scan(there, sorted(gone - there.keys() - kept), tuple(remarks))

    def _name(self, path: str) -> str:
        return written(os.path.relpath(path, self.folder.parent))

    def _entry(self, path: str, all_known: dict[str, FileEntry], text_field: str) -> FileEntry | None:
        """The entry of a file; None where it is gone meanwhile."""
        known, how = all_known.get(self._name(path)), option_of(Path(path), text_field)
        try:
            about = os.stat(path)
            state = (about.st_size, about.st_mtime_ns)
            if known and (known.size, known.changed, known.how) == (*state, how):
                return known
            if not is_read(Path(path)):
                return FileEntry(*state, "", reason=f"of no kind that is read ({READ})")
            key = file_key(Path(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            return FileEntry(ANEW, 0, "", reason=f"it cannot be read ({error.strerror})")
        if known and (known.key, known.how) == (key, how) and known.size != ANEW:
            return replace(known, size=state[0], changed=state[1])
        return FileEntry(*state, key, how)

    def _write(self, sources: Sequence[str | Path], text_field: str, started: float, *, progress: bool) -> None:
        try:
            with only_writer(self.folder):
                older = self._store.cleared()
                with self._store.writing() as database:
                    before = store.entries_of(database)
                    self.check(store.about(database)[0])
                    scan = self._scan(sources, before, text_field)
                    waiting = {name: found for name, found in scan.there.items() if found.waits}
                    done = {name: found.entry for name, found in scan.there.items() if not found.waits}
                    with store.changing(database):
                        store.forget(database, [*scan.gone, *(name for name in done if differs(done[name], before.get(name)))])
                        store.put(database, {name: entry for name, entry in done.items() if entry != before.get(name)})
                    tokens = Adding(self, database, before, waiting, text_field).run(progress=progress)
                    after = store.entries_of(database)
        except OSError as error:
            raise ConfigurationError(
                f'the index "{self.folder}" cannot be written ({error.strerror}): what is new is not read; '
                f"give {OTHERWISE}"
            ) from error
        finally:
            self.seconds_left = None
        known = {name: entry.reason for name, entry in before.items()}
        passed = {name: entry.reason for name, entry in after.items() if entry.reason not in ("", known.get(name))}
        read = sum(after[name].whole for name in waiting)
        remarks = ((f'the index in "{self.folder}" was of an older format, and is made anew',) if older else ()) + scan.remarks
        self.report = Report(read, len(scan.gone), tokens, time.perf_counter() - started, passed, remarks)
