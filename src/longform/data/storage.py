"""Files and folders that appear whole or not at all, and one process at a time that writes a place."""

import contextlib
import ctypes
import errno
import glob
import os
import re
import secrets
import shutil
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from longform.errors import ConfigurationError

UNFINISHED, OLDER = ".unfinished", ".older"  # how names end of what is being written, of what it replaces
LOCK = ".lock"  # of what one process alone may write
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP)  # filelock has a way of its own without flock
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of renameat2: paths are as the process sees them; both stay
PROCESS = secrets.token_hex(4)  # numbers of processes come again: in a container the first one is always 1
_LEFTOVER = re.compile(rf"\.(.+)\.(\d+)\.([0-9a-f]+)({UNFINISHED}|{OLDER})")
_names = count()


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Generator[IO[Any], None, None]:
    """A file that appears whole or not at all: written beside ``path``, flushed to disk, renamed in the end.

    ``mode`` is "w" (UTF-8) or "wb". Missing folders are made; a symbolic link stays, and its target is written. On any
    error the old file stays, the unfinished one is removed, and an OSError (a full disk) names ``path``.
    """
    if mode not in ("w", "wb"):
        raise ConfigurationError(f'atomic_write has the modes "w" and "wb", not "{mode}"')
    path = followed(Path(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    encoding = None if mode == "wb" else "utf-8"
    escapes = encoding and "backslashreplace"  # names of files, and labels, need not be UTF-8
    unfinished, _ = _beside(path)
    try:
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
    """A folder that appears whole or not at all, in the place of an older one: filled beside ``path``, and renamed.

    Where two folders cannot change places at once (``_exchanged``), a process may be killed between two renames: the
    older one is then put back by the next ``recover``, and so at the next start.
    """
    path = followed(path.absolute())
    recover(path)
    unfinished, older = _beside(path)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        flush_files(unfinished)
        if not path.exists():
            unfinished.rename(path)
        elif not _exchanged(unfinished, path):
            path.rename(older)
            try:
                unfinished.rename(path)
            except BaseException:
                older.rename(path)
                raise
    finally:
        remove(unfinished)
    flush_folder(path.parent)
    remove(older)


def _exchanged(first: Path, second: Path) -> bool:
    """Whether two paths have changed places, at once: Linux and most of its file systems can."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # another system
        return False
    return renameat2(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0


def followed(path: Path) -> Path:
    """Where a symbolic link leads, so that it stays when its target is replaced; another path that has a name as is."""
    return Path(os.path.realpath(path)) if path.is_symlink() or path.name in ("", "..") else path


def _beside(path: Path) -> tuple[Path, Path]:
    """The hidden names beside ``path`` of what is being written and of what it replaces; they say by which process."""
    mark = f".{path.name}.{os.getpid()}.{PROCESS}{next(_names):x}"
    return path.with_name(mark + UNFINISHED), path.with_name(mark + OLDER)


def recover(place: Path) -> None:
    """Remove what killed processes left beside ``place``, and put back the folder that one had moved aside."""
    for path in [*place.parent.glob(f".{glob.escape(place.name)}.*")]:
        found = _abandoned(path)
        if found is None or found[1] != place.name:
            continue
        if found[4] == OLDER and not os.path.lexists(place):
            path.rename(place)
        elif path.is_dir():
            remove(path)
        else:
            path.unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Delete a folder as far as that is possible, also what is read-only in it."""
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(place, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def copy_anew(source: Path, target: Path) -> None:
    """Copy a file, or a folder with all that is in it, as if this process had written it: read-only sources too."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for path in source.iterdir():
            copy_anew(path, target / path.name)
    else:
        shutil.copyfile(source, target)


def clear_leftovers(folder: Path) -> None:
    """Remove the files at any depth of ``folder`` that killed processes had not finished.

    Folders stay, which may take a process of another machine hours, until ``recover`` for the folder that they become.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(UNFINISHED) and _abandoned(Path(place, name)):
                Path(place, name).unlink(missing_ok=True)


def is_unfinished(name: str) -> bool:
    """Whether a file or folder of this name is one that a process is writing, or left unfinished."""
    return _LEFTOVER.fullmatch(name) is not None


def _abandoned(path: Path) -> re.Match[str] | None:
    """The parts of the name of what a process that has ended was writing; None for anything else."""
    found = _LEFTOVER.fullmatch(path.name)
    if found is None:
        return None
    process = int(found[2])
    is_written = found[3].startswith(PROCESS) if process == os.getpid() else _runs(process)
    return None if is_written else found


def _runs(process: int) -> bool:
    """Whether a process of this number is running; on Windows, where asking would end it, always True."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def flush_folder(folder: Path) -> None:
    """Put the names in ``folder`` on the disk, so that a rename survives a loss of power too."""
    if os.name == "nt":  # where folders cannot be opened
        return
    _flush(folder)


def flush_files(folder: Path) -> None:
    """Put every file of ``folder``, which is new, on the disk, at any depth, readable as the folder is (``share``)."""
    for place, _, names in os.walk(folder):
        with contextlib.suppress(OSError):  # a library may have copied a folder with its modes, of a read-only source
            os.chmod(place, os.stat(place).st_mode | folder.stat().st_mode & 0o777)
        for path in (Path(place, name) for name in names):
            if path.is_file():
                share(path, folder)
                _flush(path)


def share(path: Path, like: Path) -> None:
    """Let all read and write a file who may do so with ``like``: safetensors leaves its files to their owner alone."""
    with contextlib.suppress(OSError):  # file systems without modes
        path.chmod(path.stat().st_mode | like.stat().st_mode & 0o666)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Generator[bool]:
    """True while no other process holds ``path``, which the system releases when this process ends, even if killed.

    ``wait``: until the other has let go. The file goes when it is let go. Where the disk has no such locks, as some
    network file systems, always True.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(path, timeout=-1 if wait else 0).acquire()
    except Timeout:
        yield False
        return
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        yield True
        return
    with held:
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):  # of Windows, where an open file stays
                path.unlink()


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

    In a folder itself where nothing can be written beside it. Raises ConfigurationError where another process does.
    """
    place = Path(os.path.realpath(place))
    beside = not place.is_dir() or os.access(place.parent, os.W_OK)
    lock = (place.parent if beside else place) / f".{place.name}{LOCK}"
    with locked(lock) as mine:
        if not mine:
            raise ConfigurationError(
                f'"{place}" is being written by another process: wait until it has ended, or give another output'
            )
        yield
