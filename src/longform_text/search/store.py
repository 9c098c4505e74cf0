"""The index on the disk: one SQLite file, ``index.sqlite``, in a folder of its own; its tables are in ``SCHEMA``.

Documents are added in transactions, long ones by parts, so that a killed process loses what it was encoding, and a
reader, who never waits, sees no half of anything.
"""

import json
import os
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple

import numpy as np

from longform.errors import CheckpointError, ConfigurationError, InputError, some
from longform.files import entries, only_writer, remove
from longform_text.data.formats import Source
from longform_text.search.reading import Places
from longform_text.search.words import words_of

DATABASE, FORMAT = "index.sqlite", 3
OURS = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")
OLDER = ("index.json", "files.json", "parts")  # of format 1
WAY_OUT, OTHERWISE = "delete the folder of the index, and index anew", "another folder for the index (--index)"
ANEW = -1  # size of a file that is looked at anew at each call: what kept it from being read is not in the file
WAITED = 60  # seconds for another process's transaction
WORDS = "above, text, content='', tokenize=\"ascii tokenchars '_'\""  # parted by spaces; SQLite does no more to them
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE about (identity TEXT, changes INTEGER);  -- the model and how texts were cut; grows with each change
INSERT INTO about VALUES ('{{}}', 0);
CREATE TABLE files (name TEXT PRIMARY KEY, size INTEGER, changed INTEGER, key TEXT, how TEXT, documents INTEGER,
    whole INTEGER, reason TEXT);  -- a FileEntry by name
CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT, name TEXT, title TEXT, unit TEXT,
    whole INTEGER);  -- whole: all its passages are there
CREATE INDEX documents_of_files ON documents (file);
CREATE INDEX documents_by_name ON documents (name);
CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER, start INTEGER, "end" INTEGER,
    number INTEGER, headings TEXT, text TEXT);  -- characters from-to, page or line, headings above
CREATE INDEX passages_of_documents ON passages (document);
CREATE TABLE vectors (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER, first INTEGER, vectors BLOB);
CREATE INDEX vectors_of_documents ON vectors (document);  -- vectors: float32 of runs of passages
CREATE VIRTUAL TABLE passage_words USING fts5 ({WORDS});  -- in the normal form; SQLite keeps the postings alone
CREATE VIRTUAL TABLE document_words USING fts5 ({WORDS});
PRAGMA user_version = {FORMAT};
COMMIT;
"""
INDEXED = {  # rows of the tables of words: a number, words above, words of the text
    "passage_words": """SELECT passages.id, words(title || '\n' || headings), words(text)
        FROM documents JOIN passages ON document = documents.id WHERE {}""",
    "document_words": """SELECT documents.id, words(title), group_concat(words(text), ' ')
        FROM documents JOIN passages ON document = documents.id WHERE whole AND {} GROUP BY 1""",
}


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

    @property
    def waits(self) -> bool:
        """Whether the file is still to be read, as a whole or in part."""
        return not (self.whole or self.reason)

    def differs(self, known: "FileEntry | None") -> bool:
        """Whether the file is another than the ``known`` one, or not read to its end."""
        return self != known or self.waits


class Part(NamedTuple):
    """Passages of a document, characters from-to: ``spans`` (m, 2). ``first``, ``last``: it begins or ends here."""

    source: Source
    places: Places
    spans: np.ndarray
    first: bool = True
    last: bool = True


@contextmanager
def reading(folder: Path) -> Generator[Connection]:
    """The index in a folder as it is now, and stays meanwhile, whoever writes; empty where there is none."""
    path = folder / DATABASE
    log = Path(f"{path}-wal")  # SQLite makes it beside the file, and deletes it, where that can be done
    kept = os.access(folder, os.W_OK) or (log.exists() and log.stat().st_size)
    how = "mode=rw" if kept else "mode=ro&immutable=1"
    with _opened(path, how if _version(path) == FORMAT else "") as database:
        database.execute("BEGIN")
        yield database


@contextmanager
def writing(folder: Path) -> Generator[tuple[Connection, bool]]:
    """The index in a folder, for one process to write (``changing``); and whether an older one was deleted for it.

    Raises ConfigurationError where another process writes, nothing can be written, or something else is there.
    """
    try:
        with only_writer(folder):
            older = _cleared(folder)
            with _opened(folder / DATABASE, "mode=rwc") as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = NORMAL")
                yield database, older
    except OSError as error:
        raise ConfigurationError(
            f'the index "{folder}" cannot be written ({error.strerror}): what is new is not read; give {OTHERWISE}'
        ) from error


def _cleared(folder: Path) -> bool:
    """Whether an index of an older format was in the folder, which is made; it is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    there = entries(folder)
    if found := [name for name in there if name not in (*OURS, *OLDER)]:
        raise ConfigurationError(
            f'"{folder}" is not empty ({some(found)}), and holds no index: give another folder (--index)'
        )
    version = _version(folder / DATABASE)
    older = [folder / name for name in there if name in OLDER or version not in (0, FORMAT)]
    for path in older:
        remove(path) if path.is_dir() else path.unlink()
    return bool(older)


def _version(path: Path) -> int:
    """The format of an index; 0 where there is none yet. Raises CheckpointError for what is no database."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except FileNotFoundError:
        return 0
    if head and not head.startswith(b"SQLite format 3\0"):
        raise CheckpointError(f'"{path}" is damaged (it is no database): {WAY_OUT}')
    return int.from_bytes(head[60:], "big")  # where SQLite has the user_version


@contextmanager
def _opened(path: Path, how: str) -> Generator[Connection]:
    """The database, made where it is empty; one in memory where ``how`` is not said."""
    address = f"{path.as_uri()}?{how}" if how else "file::memory:"
    try:
        with closing(sqlite3.connect(address, WAITED, uri=True, isolation_level=None)) as database:
            database.create_function("words", 1, lambda text: " ".join(word.form for word in words_of(text)))
            if not database.execute("PRAGMA user_version").fetchone()[0]:
                database.executescript(SCHEMA)
            yield database
    except sqlite3.OperationalError as error:
        raise ConfigurationError(f'the index "{path}" cannot be used ({error}): try again, or {WAY_OUT}') from error
    except sqlite3.DatabaseError as error:
        raise CheckpointError(f'"{path}" is damaged ({error}): {WAY_OUT}') from error


@contextmanager
def changing(database: Connection) -> Generator[None]:
    """A transaction, which is there whole or not at all."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield
        database.execute("UPDATE about SET changes = changes + 1")


def about(database: Connection) -> tuple[dict[str, Any], int]:
    """The identity of the index, empty where nothing is in it, and a number that grows with each change."""
    identity, changes = database.execute("SELECT identity, changes FROM about").fetchone()
    return json.loads(identity), changes


def identify(database: Connection, identity: Mapping[str, Any]) -> None:
    """Write what all passages of the index have in common."""
    database.execute("UPDATE about SET identity = ?", (json.dumps(identity),))


def entries_of(database: Connection) -> dict[str, FileEntry]:
    """The files by name, in order."""
    found = database.execute("SELECT * FROM files ORDER BY name")
    return {name: FileEntry(*own, bool(whole), reason) for name, *own, whole, reason in found}


def put(database: Connection, name: str, entry: FileEntry) -> None:
    """Write the entry of a file."""
    database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (name, *entry))


def forget(database: Connection, file: str) -> None:
    """Delete a file with all that is of it."""
    for table in INDEXED:
        _index(database, table, "file = ?", file, delete=True)
    for table in ("passages", "vectors"):
        database.execute(f"DELETE FROM {table} WHERE document IN (SELECT id FROM documents WHERE file = ?)", (file,))
    database.execute("DELETE FROM documents WHERE file = ?", (file,))
    database.execute("DELETE FROM files WHERE name = ?", (file,))


def begun(database: Connection, file: str) -> int:
    """How many passages there are of a document of a file that is not whole."""
    query = "SELECT count(*) FROM passages JOIN documents ON documents.id = document WHERE file = ? AND NOT whole"
    return database.execute(query, (file,)).fetchone()[0]


def append(database: Connection, file: str, part: Part, vectors: np.ndarray) -> None:
    """Add a part of a document, and its vectors (m, D), to a file."""
    source = part.source
    if not np.isfinite(vectors).all():
        raise InputError(f"document {source.id}: the model's result is NaN or infinite")
    if part.first:
        row = "INSERT INTO documents (file, name, title, unit, whole) VALUES (?, ?, ?, ?, 0)"
        database.execute(row, (file, source.id, source.title, source.unit))
    document = database.execute("SELECT max(id) FROM documents WHERE file = ?", (file,)).fetchone()[0]
    row = 'INSERT INTO passages (document, start, "end", number, headings, text) VALUES (?, ?, ?, ?, ?, ?)'
    rows = [
        (document, start, end, *part.places.at(start), source.text[start:end]) for start, end in part.spans.tolist()
    ]
    first = min(database.execute(row, values).lastrowid or 0 for values in rows)
    _index(database, "passage_words", "document = ? AND passages.id >= ?", document, first)
    row = "INSERT INTO vectors (document, first, vectors) VALUES (?, ?, ?)"
    database.execute(row, (document, first, vectors.astype(np.float32, copy=False).tobytes()))
    if part.last:
        database.execute("UPDATE documents SET whole = 1 WHERE id = ?", (document,))
        _index(database, "document_words", "documents.id = ?", document)


def _index(database: Connection, table: str, where: str, *values: Any, delete: bool = False) -> None:
    names, first = (f"{table}, ", "'delete', ") if delete else ("", "")  # FTS5's way of saying it
    rows = INDEXED[table].format(where)
    database.execute(f"INSERT INTO {table} ({names}rowid, above, text) SELECT {first}* FROM ({rows})", values)
