"""Index of documents in a folder: what is new is read, and a question finds documents and passages that answer it."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, NamedTuple, Self

from tqdm import tqdm

from longform.digests import file_key
from longform.errors import ConfigurationError, DataError, InputError
from longform.files import check_same
from longform_text.data.files import files_below, once
from longform_text.data.progress import hidden
from longform_text.data.text import written
from longform_text.search import store
from longform_text.search.adding import Adding, Scan
from longform_text.search.model import Model
from longform_text.search.ranking import Hit, Searched, place_of
from longform_text.search.reading import READ, option_of
from longform_text.search.store import ANEW, OTHERWISE, FileEntry

if TYPE_CHECKING:
    from longform_text.inference.encoders import Encoder

WHY_EMPTY = "is a disk not there? To forget them, delete the folder of the index"


class Report(NamedTuple):
    """Result of an ``Index.add``: files that were read and removed, the tokens and seconds of that, the files newly
    passed over, in whole or in part, with the reason, and what else is to be said.
    """

    read: int
    removed: int
    tokens: int
    seconds: float
    passed_over: dict[str, str]
    remarks: tuple[str, ...] = ()


class Index:
    """Documents of folders and files, searched by a question.

    ``folder``: of the index itself, which is made; its layout is in ``longform_text.search.store``. ``encoder``: an
    Encoder, or what ``Encoder.from_pretrained`` takes. ``chunk_tokens``: tokens of a passage at most, and at most half
    of what the model takes. ``device``: of an encoder that is loaded here. An index is opened with the encoder and
    number that it was made with. Raises ConfigurationError, naming both, for others, CheckpointError for a damaged
    index.
    """

    def __init__(
        self,
        folder: str | Path,
        encoder: "Encoder | str | Path" = "minilm-16k",
        *,
        chunk_tokens: int = 256,
        device: str = "auto",
    ) -> None:
        if chunk_tokens < 1:
            raise ConfigurationError(f"chunk_tokens is {chunk_tokens}; it is at least 1")
        self.folder = Path(os.path.abspath(Path(folder).expanduser()))
        self._model = Model(encoder, device, chunk_tokens)
        self._searched: Searched | None = None
        self._adding: Adding | None = None
        self.report = Report(0, 0, 0, 0.0, {})
        with store.reading(self.folder) as database:
            self._check(database)

    @property
    def encoder(self) -> "Encoder":
        """The encoder, loaded when it is first needed."""
        return self._model.encoder

    @property
    def files(self) -> dict[str, FileEntry]:
        """State of every file by its name, relative to the folder that holds the index."""
        with store.reading(self.folder) as database:
            return store.entries_of(database)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that an ``add`` in another thread still takes, as far as is known; None: nothing is being read."""
        adding = self._adding
        return adding.seconds_left if adding else None

    def passed_over(self) -> dict[str, str]:
        """Why files, or parts of them, are not searched, by name."""
        return _reasons(self.files)

    def __len__(self) -> int:
        """Passages."""
        with store.reading(self.folder) as database:
            return database.execute("SELECT count(*) FROM passages").fetchone()[0]

    def add(self, *sources: str | Path, text_field: str = "text", progress: bool = False) -> Self:
        """Read what is new or changed in folders and files, forget what is gone there; ``report`` says what was done.

        Hidden files are passed over, others that cannot be read are named with the reason. A folder in which nothing is
        left keeps its files in the index: it may be a disk that is not there. ``text_field``: of records. What is read
        is searched at once, also from other threads; a killed process goes on at the next call. Raises
        ConfigurationError where another process is writing the index, or nothing can be written, DataError for sources
        that do not exist.
        """
        started, places = time.perf_counter(), [os.path.abspath(Path(source).expanduser()) for source in sources]
        for place in places:
            if not os.path.exists(place):
                raise DataError(f'"{place}" does not exist')
        scan = self._scan(places, self.files, text_field)
        self.report = Report(0, 0, 0, time.perf_counter() - started, {}, scan.remarks)
        if not (scan.changed or scan.gone):
            return self
        with store.writing(self.folder) as (database, older):
            self._check(database)
            before = store.entries_of(database)
            scan = self._scan(places, before, text_field)
            adding = self._adding = Adding(self._model, database, before, scan)
            waiting = [name for name, entry in scan.changed.items() if entry.waits]
            try:
                with tqdm(unit=" tokens", unit_scale=True, disable=hidden(progress and bool(waiting))) as bar:
                    adding.run(text_field, bar)
            finally:
                self._adding = None
            after = store.entries_of(database)
        self.report = Report(
            sum(after[name].whole for name in waiting),
            len(scan.gone),
            adding.tokens,
            time.perf_counter() - started,
            dict(sorted(_reasons(after).items() - _reasons(before).items())),
            (*[f'the index "{self.folder}" was of an older format, and is made anew'] * older, *scan.remarks),
        )
        return self

    def search(
        self, question: str, k: int = 10, *, passages: int = 1, within: Sequence[str | Path] | None = None
    ) -> list[Hit]:
        """The ``k`` best documents for a question, the best ``passages`` of each.

        Documents are ranked by their nearest passage and by BM25, passages by their vector and by BM25. ``within``:
        folders and files that are searched; None: all. Raises InputError for an empty question, ConfigurationError for
        less than one document or passage.
        """
        question = question.encode("utf-8", "replace").decode()  # bytes of a terminal need not be UTF-8
        if not question.strip():
            raise InputError("the question is empty")
        if k < 1 or passages < 1:
            raise ConfigurationError(f"k={k} and passages={passages}; both are at least 1")
        vector = self._model.question(question)
        with store.reading(self.folder) as database:
            searched = self._searched = Searched.of(database, self._searched)
            files = None if within is None else {*self._below(store.entries_of(database), within)}
            return searched.best(database, question, vector, k, passages, files)

    def document(self, name: str) -> tuple[str, list[tuple[str, str]]]:
        """The title of a document, and the place and text of each of its passages, in order; none where it is not."""
        query = """SELECT title, unit, number, start, "end", text FROM documents
            JOIN passages ON document = documents.id WHERE documents.name = ? ORDER BY passages.id"""
        with store.reading(self.folder) as database:
            rows = database.execute(query, (name,)).fetchall()
        return (rows[0][0] if rows else ""), [(place_of(*place), text) for _, *place, text in rows]

    def _check(self, database: Connection) -> None:
        """Raise ConfigurationError where the index was made with another encoder, or other numbers."""
        if identity := store.about(database)[0]:
            check_same(self.folder, identity, self._model.identity(identity), otherwise=OTHERWISE)

    def _below(self, names: Iterable[str], places: Iterable[str | Path]) -> Iterator[str]:
        """Names, of the given ones, of files in the ``places``, or of these themselves."""
        above = [os.path.abspath(Path(place).expanduser()) for place in places]
        for name in names:
            path = os.path.normpath(self.folder.parent / name)
            if any(path == place or path.startswith(os.path.join(place, "")) for place in above):
                yield name

    def _scan(self, places: Sequence[str], known: Mapping[str, FileEntry], text_field: str) -> Scan:
        """Files that are new, changed or gone in folders, beside what is ``known``."""
        paths, gone, remarks, unread = list[str](), set[str](), list[str](), dict[str, str]()
        for place in places:
            found, own = files_below(place, but=(".",), unread=unread), {*self._below(known, [place])}
            paths += found
            if own and not found and place not in unread:
                remarks.append(f'"{place}" is empty, and its {len(own):,} files stay in the index: {WHY_EMPTY}')
            else:
                gone |= own
        there = {self._name(path): FileEntry(ANEW, 0, "", reason=reason) for path, reason in unread.items()}
        files = {self._name(path): Path(path) for path in once(paths)}
        for name, path in files.items():
            if not path.is_relative_to(self.folder) and (entry := _entry(path, known.get(name), text_field)):
                there[name] = entry
        changed = {name: entry for name, entry in there.items() if entry.differs(known.get(name))}
        kept = {*self._below(known, unread)}
        return Scan(changed, files, sorted(gone - there.keys() - kept), tuple(remarks))

    def _name(self, path: str) -> str:
        return written(os.path.relpath(path, self.folder.parent))


def _reasons(files: Mapping[str, FileEntry]) -> dict[str, str]:
    return {name: entry.reason for name, entry in files.items() if entry.reason}


def _entry(path: Path, known: FileEntry | None, text_field: str) -> FileEntry | None:
    """The entry of a file, the ``known`` one where it has not changed; None where it is gone meanwhile."""
    how = option_of(path, text_field)
    try:
        about = os.stat(path)
        state = (about.st_size, about.st_mtime_ns)
        if how is None:
            return FileEntry(*state, "", reason=f"of no kind that is read ({READ})")
        if known and (known.size, known.changed, known.how) == (*state, how):
            return known
        key = file_key(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return FileEntry(ANEW, 0, "", reason=f"it cannot be read ({error.strerror})")
    if known and (known.key, known.how) == (key, how) and known.size != ANEW:
        return known._replace(size=state[0], changed=state[1])
    return FileEntry(*state, key, how)
