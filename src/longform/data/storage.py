"""Files and folders that appear whole or not at all, and one process at a time that writes a place."""

import contextlib
import datetime
import json
import os
import shutil
import sys
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from longform.errors import ConfigurationError

UNFINISHED = ".unfinished"  # how the name of a file ends that is being written


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Generator[IO[Any], None, None]:
    """A file that appears whole or not at all: written beside ``path``, flushed to disk, renamed in the end.

    ``mode`` is "w" (UTF-8) or "wb". Missing folders are made. On any error the old file stays, the unfinished one is
    removed, and an OSError (a full disk) names ``path``.
    """
    if mode not in ("w", "wb"):
        raise ConfigurationError(f'atomic_write has the modes "w" and "wb", not "{mode}"')
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        encoding = None if mode == "wb" else "utf-8"
        escapes = encoding and "backslashreplace"  # names of files, and labels, need not be UTF-8
        with open(unfinished, mode, encoding=encoding, newline=encoding and "\n", errors=escapes) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        flush_folder(path.parent)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextlib.contextmanager
def atomic_folder(path: Path) -> Generator[Path, None, None]:
    """A folder that appears whole or not at all, in the place of an older one: filled beside ``path``, and renamed."""
    path = path.absolute()
    unfinished, older = (path.with_name(f".{path.name}.{os.getpid()}{end}") for end in (UNFINISHED, ".older"))
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        if path.exists():
            path.rename(older)
        try:
            unfinished.rename(path)
        except BaseException:
            if older.exists():
                older.rename(path)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    flush_folder(path.parent)
    shutil.rmtree(older, ignore_errors=True)


def flush_folder(folder: Path) -> None:
    """Put the names in ``folder`` on the disk, so that a rename survives a loss of power too."""
    if os.name == "nt":  # where folders cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Generator[bool]:
    """True while no other process holds ``path``, which the system releases when this process ends, even if killed.

    ``wait``: until the other has let go. The file says who holds it (``holder``), and goes when it is let go. Where the
    system has no such locks (Windows), always True.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if find_spec("fcntl") is None:
        yield True
        return
    handle = _acquire(path, wait=wait)
    try:
        if handle is not None:
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps(_this_process()).encode())
        yield handle is not None
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)  # before it is let go: no other process can hold it yet
            os.close(handle)


def _acquire(path: Path, *, wait: bool) -> int | None:
    """The locked file's descriptor, None where another process has it."""
    import fcntl

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                return None
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)  # the one who had it deleted it meanwhile: the next file of this name is another


def _this_process() -> dict[str, Any]:
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return {"process": os.getpid(), "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200], "since": since}


def holder(path: Path) -> str:
    """Who holds the lock ``path``, for a message."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return f"process {found['process']} ({found['command']}), since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def made_once(folder: Path, make: Callable[[Path], None]) -> None:
    """Fill ``folder`` by ``make`` where it does not exist yet: one process does, others wait for what it has made."""
    if folder.exists():
        return
    with locked(folder.with_name(f".{folder.name}.lock"), wait=True):
        if not folder.exists():
            with atomic_folder(folder) as unfinished:
                make(unfinished)


@contextlib.contextmanager
def only_writer(place: Path) -> Generator[None]:
    """Keep other processes from writing ``place``, a file or folder, meanwhile; the lock is ".NAME.lock" beside it.

    Raises ConfigurationError, which says who writes there, where another process does.
    """
    place = place.absolute()
    lock = place.with_name(f".{place.name}.lock")
    with locked(lock) as mine:
        if not mine:
            raise ConfigurationError(
                f'"{place}" is being written by {holder(lock)}: wait until it has ended, or give another output'
            )
        yield
