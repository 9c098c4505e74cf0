"""The folder of an index, as it lies on the disk: parts that are written once, and a list of the files in them.

    index.json                  the model and how texts were cut; who opens the folder with another is refused
    files.json                  each file: size, time of its last change, digest, parts that hold its passages, or the
                                reason why it is passed over
    parts/00000001/
        passages.parquet        a row a passage: file, document, title, place, start, end (characters), words, text
        vectors.npy             float32 (m, D), a row a passage
        words.npy, begins.npy, pairs.npy   which passage has which word (longform_text.search.words.Postings)

A part counts as far as files.json names it: files.json is replaced when a part is whole, so that a killed process loses
the part that it was making. All arrays are memory-mapped, and none is pickled.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from longform.errors import require
from longform.files import atomic_folder, read_json, reading, remove, write_json
from longform_text.search.words import Postings, postings_of

FILES, PARTS, PASSAGES, VECTORS = "files.json", "parts", "passages.parquet", "vectors.npy"
ROWS_AT_A_TIME = 256  # of a row group: a hit reads one
LARGE = 2**14  # passages; smaller parts are joined
SMALL_PARTS = 16  # that there may be
WAY_OUT = "delete the folder of the index, and index anew"


class Row(NamedTuple):
    """A passage: its file, document and title, its place there in words and in characters, its text."""

    file: str
    document: str
    title: str
    place: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class FileEntry:
    """State of a file when it was read. ``documents``: of it that are in ``parts``; ``whole``: all are.

    ``reason``: why it is passed over.
    """

    size: int
    changed: int  # nanoseconds
    key: str
    parts: tuple[int, ...] = ()
    documents: int = 0
    whole: bool = False
    reason: str = ""


class Part:
    """A part that is searched, open as long as it is used, whatever becomes of its folder.

    By passage (m,): ``file_of`` and ``document_of``, numbers of its file and document in the lists ``files`` and
    ``documents``, and ``lengths``, its words.
    """

    def __init__(self, folder: Path, number: int) -> None:
        arrow = require("pyarrow", extra="search")
        parquet = require("pyarrow.parquet", extra="search")
        self.number, self._reading = number, Lock()
        with reading(folder, way_out=WAY_OUT, errors=(ValueError, KeyError, arrow.ArrowException)):
            arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in Postings._fields]
            self.postings, self.vectors = Postings(*arrays), np.load(folder / VECTORS, mmap_mode="r")
            self._table = parquet.ParquetFile(folder / PASSAGES, memory_map=True)
            about = self._table.read(["file", "document", "words"])
            self.files, self.file_of = _numbered(about["file"])
            self.documents, self.document_of = _numbered(about["document"])
            self.lengths = np.from_dlpack(about["words"].combine_chunks())
            if len(self.lengths) != len(self.vectors):
                raise ValueError(f"{len(self.lengths)} passages, {len(self.vectors)} vectors")

    def __len__(self) -> int:
        return len(self.vectors)

    def row(self, number: int) -> Row:
        """The passage of a number."""
        with self._reading:
            group = self._table.read_row_group(number // ROWS_AT_A_TIME, columns=list(Row._fields))
        return Row(**group.slice(number % ROWS_AT_A_TIME, 1).to_pylist()[0])

    def rows(self) -> list[Row]:
        """Every passage."""
        return [Row(**each) for each in self._table.read(list(Row._fields)).to_pylist()]


def _numbered(column: Any) -> tuple[list[str], np.ndarray]:
    """The different names in a column of a table, and the number of each row's name (m,)."""
    found = column.combine_chunks().dictionary_encode()
    return found.dictionary.to_pylist(), np.from_dlpack(found.indices)  # to_numpy would import pandas, for a second


@dataclass(frozen=True)
class Store:
    """The files of an index in ``folder``; one process at a time writes it."""

    folder: Path
    files: dict[str, FileEntry] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Store":
        """The store as it is on the disk. Raises CheckpointError for a damaged one."""
        if not (folder / FILES).exists():
            return cls(folder)
        found = read_json(folder / FILES, way_out=WAY_OUT)
        with reading(folder / FILES, way_out=WAY_OUT):
            entries = {name: FileEntry(**entry | {"parts": tuple(entry["parts"])}) for name, entry in found.items()}
        return cls(folder, entries)

    def numbers(self) -> list[int]:
        """The parts that hold passages of files."""
        return sorted({number for entry in self.files.values() for number in entry.parts})

    def parts(self, opened: dict[int, Part]) -> list[Part]:
        """Every part; those that are ``opened`` are taken as they are."""
        return [opened.get(number) or Part(self._place(number), number) for number in self.numbers()]

    def write(self, rows: list[Row], vectors: np.ndarray, entries: dict[str, FileEntry]) -> int:
        """Write a part, to which the ``entries`` of its files are led; returns its number."""
        number = max((int(path.name) for path in (self.folder / PARTS).glob("[0-9]*")), default=0) + 1
        arrow = require("pyarrow", extra="search")
        parquet = require("pyarrow.parquet", extra="search")
        postings, words = postings_of([f"{row.title}\n{row.text}" for row in rows])
        table = arrow.Table.from_pylist([row._asdict() for row in rows]).append_column("words", arrow.array(words))
        with atomic_folder(self._place(number)) as unfinished:
            parquet.write_table(table, unfinished / PASSAGES, row_group_size=ROWS_AT_A_TIME, compression="zstd")
            np.save(unfinished / VECTORS, vectors.astype(np.float32, copy=False), allow_pickle=False)
            for name, array in postings._asdict().items():
                np.save(unfinished / f"{name}.npy", array, allow_pickle=False)
        held = {row.file for row in rows}
        self.keep(
            {
                name: replace(entry, parts=(*entry.parts, number)) if name in held else entry
                for name, entry in entries.items()
            }
        )
        return number

    def keep(self, entries: dict[str, FileEntry], removed: Collection[str] = ()) -> None:
        """Write the list of files with these ``entries``, without those ``removed``, where it changes."""
        if not removed and all(self.files.get(name) == entry for name, entry in entries.items()):
            return
        self.files.update(entries)
        for name in removed:
            del self.files[name]
        write_json(self.folder / FILES, {name: asdict(entry) for name, entry in sorted(self.files.items())})

    def _place(self, number: int) -> Path:
        return self.folder / PARTS / f"{number:08}"

    def tidy(self) -> None:
        """Join small parts where they are many, without passages that no file has any more; delete unnamed parts."""
        small = [part for part in self.parts({}) if len(part) < LARGE // 2]
        while len(small) > SMALL_PARTS:
            joined, small = _beginning(small)
            self._join(joined)
        named = set(self.numbers())
        for path in (self.folder / PARTS).glob("*"):
            if not path.name.isdigit() or int(path.name) not in named:
                remove(path)

    def _join(self, parts: list[Part]) -> None:
        numbers = {part.number for part in parts}
        rows, vectors = [], []
        for part in parts:
            own = part.rows()
            kept = [at for at, row in enumerate(own) if self.holds(row.file, part.number)]
            rows += [own[at] for at in kept]
            vectors.append(part.vectors[kept])
        entries = {
            name: replace(entry, parts=tuple(each for each in entry.parts if each not in numbers))
            for name, entry in self.files.items()
            if numbers & {*entry.parts}
        }
        self.write(rows, np.concatenate(vectors), entries)

    def holds(self, file: str, number: int) -> bool:
        """Whether the passages of ``file`` in a part are those of the file as it is now."""
        return file in self.files and number in self.files[file].parts


def _beginning(parts: list[Part]) -> tuple[list[Part], list[Part]]:
    """The first parts that are LARGE together, at least two, and those after them."""
    passages, taken = 0, 0
    while taken < len(parts) and (taken < 2 or passages + len(parts[taken]) <= LARGE):
        passages, taken = passages + len(parts[taken]), taken + 1
    return parts[:taken], parts[taken:]
