"""The index on the disk: one SQLite file, ``index.sqlite``, in a folder of its own.

    about           the model and how texts were cut, and a number that grows with each change
    files           by name: size, time of the last change, digest, how each was read, or why it is passed over
    documents       of each file, with title; ``whole``: all its passages are there
    passages        of each document: characters from-to, page or line, headings above, text
    vectors         float32 of runs of passages
    passage_words, document_words   their words in the normal form (FTS5, of which SQLite keeps the postings alone)

Documents are added in transactions, long ones by parts, so that a killed process loses what it was encoding, and a
reader, who never waits, sees no half of anything.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longform.errors import CheckpointError, ConfigurationError, some
from longform.files import entries, remove
from longform_text.data.formats import Source
from longform_text.search.words import words_of

DATABASE, FORMAT = "index.sqlite", 3
OURS = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")
OLDER = ("index.json", "files.json", "parts")  # of format 1
WAY_OUT = "delete the folder of the index, and index anew"
ANEW = -1  # size of a file that is looked at anew at each call: what kept it from being read is not in the file
WAITED = 60  # seconds for another process's transaction
WORDS = "above, text, content='', tokenize=\"ascii tokenchars '_'\""  # parted by spaces; SQLite does no more to them
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE about (identity TEXT, changes INTEGER);
INSERT INTO about VALUES ('{{}}', 0);
CREATE TABLE files (name TEXT PRIMARY KEY, size INTEGER, changed INTEGER, key TEXT, how TEXT, documents INTEGER,
    whole INTEGER, reason TEXT);
CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT, name TEXT, title TEXT, unit TEXT,
    whole INTEGER);
CREATE INDEX documents_of_files ON documents (file);
CREATE INDEX documents_by_name ON documents (name);
CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER, start INTEGER, "end" INTEGER,
    number INTEGER, headings TEXT, text TEXT);
CREATE INDEX passages_of_documents ON passages (document);
CREATE TABLE vectors (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER, first INTEGER, vectors BLOB);
CREATE INDEX vectors_of_documents ON vectors (document);
CREATE VIRTUAL TABLE passage_words USING fts5 ({WORDS});
CREATE VIRTUAL TABLE document_words USING fts5 ({WORDS});
PRAGMA user_version = {FORMAT};
COMMIT;
"""


class FileEntry(NamedTuple):
    """State of a file when it was read. ``how``: options of reading that its kind has; ``documents``: of it that are in
    the index whole; ``whole``: all are. ``reason``: why it, or a part of it, is passed over.
    """

    size: int
    changed: int  # nanoseconds
    key: str
    how: str = ""
    documents: int = 0
    whole: bool = False
    reason: str = ""

    def differs(self, before: "FileEntry | None") -> bool:
        """Whether the file has another content, or is read otherwise, than what of it was in the index ``before``."""
        return before is not None and (self.key, self.how) != (before.key, before.how)

    @property
    def waits(self) -> bool:
        """Whether the file is still to be read, as a whole or in part."""
        return not (self.whole or self.reason)


class Passage(NamedTuple):
    """Characters from-to of a document, the number of the page or line where they begin, the headings above, text."""

    start: int
    end: int
    number: int
    headings: str
    text: str


class Store:
    """The index in ``folder``, which need not be there; one process at a time writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / DATABASE

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """The index as it is now, and stays meanwhile, whoever writes; empty where there is none.

        Raises CheckpointError for a damaged one.
        """
        log = Path(f"{self.path}-wal")  # SQLite makes it beside the file, and deletes it, where that can be done
        kept = os.access(self.folder, os.W_OK) or (log.exists() and log.stat().st_size)
        how = "mode=rw" if kept else "mode=ro&immutable=1"
        with self._opened(how if self.version() == FORMAT else "") as database:
            database.execute("BEGIN")
            yield database

    @contextlib.contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """The index, to be changed in transactions (``changing``), made where there is none.

        Raises ConfigurationError where nothing can be written.
        """
        with self._opened("mode=rwc") as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            yield database

    def cleared(self) -> bool:
        """Whether an index of an older format was there, which is deleted. The folder is made.

        Raises ConfigurationError for a folder of something else.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        there = entries(self.folder)
        if there and (found := [name for name in there if name not in (*OURS, *OLDER)]):
            raise ConfigurationError(
                f'"{self.folder}" is not empty ({some(found)}), and holds no index: give another folder (--index)'
            )
        older = [name for name in there if name in OLDER or self.version() not in (0, FORMAT)]
        for path in (self.folder / name for name in older):
            remove(path) if path.is_dir() else path.unlink()
        return bool(older)

    def version(self) -> int:
        """The format of the index; 0 where there is none yet. Raises CheckpointError for what is no database."""
        try:
            with self.path.open("rb") as file:
                head = file.read(64)
        except FileNotFoundError:
            return 0
        if head and not head.startswith(b"SQLite format 3\0"):
            raise CheckpointError(f'"{self.path}" is damaged (it is no database): {WAY_OUT}')
        return int.from_bytes(head[60:], "big")  # where SQLite has the user_version

    @contextlib.contextmanager
    def _opened(self, how: str) -> Generator[sqlite3.Connection]:
        address = f"{self.path.as_uri()}?{how}" if how else "file::memory:"
        try:
            with contextlib.closing(sqlite3.connect(address, WAITED, uri=True, isolation_level=None)) as database:
                if not database.execute("PRAGMA user_version").fetchone()[0]:
                    database.executescript(SCHEMA)
                yield database
        except sqlite3.OperationalError as error:
            raise ConfigurationError(
                f'the index "{self.path}" cannot be used ({error}): try again, or {WAY_OUT}'
            ) from error
        except sqlite3.DatabaseError as error:
            raise CheckpointError(f'"{self.path}" is damaged ({error}): {WAY_OUT}') from error


@contextlib.contextmanager
def changing(database: sqlite3.Connection) -> Generator[None]:
    """A transaction, which is there whole or not at all."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield
        database.execute("UPDATE about SET changes = changes + 1")


def about(database: sqlite3.Connection) -> tuple[dict[str, Any], int]:
    """The identity of the index, empty where nothing is in it, and a number that grows with each change."""
    identity, changes = database.execute("SELECT identity, changes FROM about").fetchone()
    return json.loads(identity), changes


def identify(database: sqlite3.Connection, identity: Mapping[str, Any]) -> None:
    """Write what all passages of the index have in common."""
    database.execute("UPDATE about SET identity = ?", (json.dumps(identity),))


def entries_of(database: sqlite3.Connection) -> dict[str, FileEntry]:
    """The files by name, in order."""
    found = database.execute("SELECT * FROM files ORDER BY name")
    return {name: FileEntry(*own, bool(whole), reason) for name, *own, whole, reason in found}


def put(database: sqlite3.Connection, files: Mapping[str, FileEntry]) -> None:
    """Write the entries of ``files``."""
    rows = [(name, *entry) for name, entry in files.items()]
    database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def forget(database: sqlite3.Connection, names: Iterable[str]) -> None:
    """Delete files with all that is of them."""
    for name in names:
        for (document,) in database.execute("SELECT id FROM documents WHERE file = ?", (name,)).fetchall():
            passages, whole = _indexed(database, document)
            _index(database, "passage_words", passages, delete=True)
            _index(database, "document_words", whole, delete=True)
            for table, key in (("passages", "document"), ("vectors", "document"), ("documents", "id")):
                database.execute(f"DELETE FROM {table} WHERE {key} = ?", (document,))
        database.execute("DELETE FROM files WHERE name = ?", (name,))


def begin(database: sqlite3.Connection, file: str, source: Source) -> int:
    """A new document of a file, without passages; its number."""
    row = "INSERT INTO documents (file, name, title, unit, whole) VALUES (?, ?, ?, ?, 0)"
    return int(database.execute(row, (file, source.id, source.title, source.unit)).lastrowid or 0)


def begun(database: sqlite3.Connection, file: str) -> tuple[int, int] | None:
    """The document of a file that is there in part: its number, and its passages."""
    unfinished = """SELECT documents.id, count(passages.id) FROM documents LEFT JOIN passages ON document = documents.id
        WHERE file = ? AND NOT whole GROUP BY 1"""
    return database.execute(unfinished, (file,)).fetchone()


def add(database: sqlite3.Connection, document: int, passages: Sequence[Passage], vectors: np.ndarray) -> None:
    """Append passages, and their vectors (m, D), to a document."""
    title = database.execute("SELECT title FROM documents WHERE id = ?", (document,)).fetchone()[0]
    row = 'INSERT INTO passages (document, start, "end", number, headings, text) VALUES (?, ?, ?, ?, ?, ?)'
    ids = [int(database.execute(row, (document, *passage)).lastrowid or 0) for passage in passages]
    rows = [(id, *_words(title, each.headings, each.text)) for id, each in zip(ids, passages, strict=True)]
    _index(database, "passage_words", rows)
    values = (document, ids[0], vectors.astype(np.float32, copy=False).tobytes())
    database.execute("INSERT INTO vectors (document, first, vectors) VALUES (?, ?, ?)", values)


def finish(database: sqlite3.Connection, document: int) -> None:
    """Mark a document as whole, and index its words."""
    database.execute("UPDATE documents SET whole = 1 WHERE id = ?", (document,))
    _index(database, "document_words", _indexed(database, document)[1])


Indexed = tuple[int, str, str]  # a row of words: its number, words above, words of the text


def _indexed(database: sqlite3.Connection, document: int) -> tuple[list[Indexed], list[Indexed]]:
    """Rows of ``passage_words`` and of ``document_words`` for a document; of the second none before it is whole."""
    title, whole = database.execute("SELECT title, whole FROM documents WHERE id = ?", (document,)).fetchone()
    found = database.execute("SELECT id, headings, text FROM passages WHERE document = ? ORDER BY id", (document,))
    passages = [(id, *_words(title, headings, text)) for id, headings, text in found]
    both = (_joined(title), " ".join(text for _, _, text in passages))
    return passages, [(document, *both)] if whole else []


def _index(database: sqlite3.Connection, table: str, rows: list[Indexed], *, delete: bool = False) -> None:
    names, values = (f"{table}, ", "'delete', ") if delete else ("", "")  # FTS5's way of saying it
    database.executemany(f"INSERT INTO {table} ({names}rowid, above, text) VALUES ({values}?, ?, ?)", rows)


def _words(title: str, headings: str, text: str) -> tuple[str, str]:
    return _joined(f"{title}\n{headings}"), _joined(text)


def _joined(text: str) -> str:
    return " ".join(word.form for word in words_of(text))
