"""Short names for content: of values, of files, and of all files of a folder, to tell whether they are the same."""

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Set
from functools import lru_cache
from pathlib import Path
from typing import Any

KEY_CHARACTERS = 16  # 64 bits
SETTLED = 2 * 10**9  # nanoseconds after which a change of a file has another time than the change before it


class Digest:
    """A running digest of values: texts, bytes, numbers, None, mappings, sets, and anything that gives its items.

    Texts count whole, and sequences by their items, whether they are lists, arrays or columns of a data set. sha256 is
    the fastest of hashlib where the CPU has instructions for it.
    """

    def __init__(self, *values: Any) -> None:
        self._hash = hashlib.sha256()
        for value in values:
            self.add(value)

    def add(self, value: Any) -> None:
        """Add one value, no part of which can be mistaken for a part of the next."""
        if getattr(value, "ndim", None) == 0:  # a number of numpy or torch
            value = value.item()
        match value:
            case str():
                self._frame("text", value.encode("utf-8", "surrogatepass"))
            case bytes() | memoryview():
                self._frame("bytes", value)
            case Mapping():
                self._items("mapping", [(name, value[name]) for name in sorted(value, key=str)])
            case Set():
                self._items("set", sorted(map(content_key, value)))
            case Iterable():
                self._items("items", value)
            case _:
                shown = hex(value) if isinstance(value, int) else str(value)  # str has a limit of digits
                self._frame(type(value).__name__, shown.encode("utf-8", "surrogatepass"))

    def _frame(self, kind: str, content: bytes | memoryview) -> None:
        self._hash.update(f"{kind} {len(content)} ".encode())
        self._hash.update(content)

    def _items(self, kind: str, items: Iterable[Any]) -> None:
        self._hash.update(f"{kind} ".encode())
        for item in items:
            self.add(item)
        self._hash.update(b"end ")

    @property
    def key(self) -> str:
        """The short name of all that was added."""
        return self._hash.hexdigest()[:KEY_CHARACTERS]


def content_key(*values: Any) -> str:
    """The short name of some values (see Digest): the same for equal ones, in practice another for any other."""
    return Digest(*values).key


def file_key(path: Path) -> str:
    """The short name of a file's bytes; a file that did not change meanwhile is read once in a process."""
    state = path.stat()
    settled = time.time_ns() - max(state.st_ctime_ns, state.st_mtime_ns) > SETTLED
    seen = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return (_read_key if settled else _read_key.__wrapped__)(path.absolute(), seen)


@lru_cache(maxsize=4096)
def _read_key(path: Path, seen: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:KEY_CHARACTERS]


def digests(folder: Path, paths: Iterable[Path] | None = None) -> dict[str, str]:
    """The ``file_key`` of each file of ``paths``, or at any depth, by its name inside ``folder`` (see ``foreign``)."""
    every = sorted(folder.rglob("*") if paths is None else paths)
    return {path.relative_to(folder).as_posix(): file_key(path) for path in every if path.is_file()}


def foreign(folder: Path, written: Mapping[str, str], *, but: Collection[str] = ()) -> list[str]:
    """Names in ``folder`` ``but`` these that we did not write, or that were changed since.

    ``written``: ``digests`` of when it was written.
    """
    folders = {parent.as_posix() for name in (*written, *but) for parent in Path(name).parents}
    there = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    unknown = sorted(name for name in there if name not in (*written, *but, *folders))
    now = {name: file_key(folder / name) for name in written if (folder / name).is_file()}
    return unknown or sorted(
        name for name in now if not str(written[name]).startswith(now[name])
    )  # once: whole digests
