"""Files and folders that appear whole or not at all, one writer at a time.

Every command that writes asks ``sole_output`` first: it refuses an output that is an input, and one that another
process is writing. Only what Longform wrote is ever replaced or deleted. A run keeps its identity (settings, model,
data) in a JSON file that is written before the work begins (``RunFile``): only the same run may go on with it.
"""

import contextlib
import errno
import glob
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from longform.errors import CheckpointError, ConfigurationError, LongformError, some

UNFINISHED, OLDER, LOCK = ".unfinished", ".older", ".lock"  # how names end: being written, replaced, of one writer
PROCESS = secrets.token_hex(4)  # process numbers are used again: in a container the first one is always 1
_LEFTOVER = re.compile(rf"\.(.+)\.(\d+)\.([0-9a-f]+)({UNFINISHED}|{OLDER})")
_names = count()
DAMAGED = (OSError, ValueError, TypeError, KeyError, IndexError, RuntimeError)


# Whole files and folders


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
    # Names of files, and labels, need not be UTF-8.
    text: Any = {"encoding": "utf-8", "newline": "\n", "errors": "backslashreplace"} if mode == "w" else {}
    unfinished = _beside(path, UNFINISHED)
    try:
        with open(unfinished, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        flush(path.parent)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextlib.contextmanager
def atomic_folder(path: Path) -> Generator[Path, None, None]:
    """A folder that appears whole or not at all, in the place of an older one: filled beside ``path``, then renamed.

    Two folders cannot change places at once: where the process is killed between the two renames, the next ``recover``,
    and so the next start, puts the older one back.
    """
    path = followed(path.absolute())
    recover(path)
    unfinished, older = _beside(path, UNFINISHED), _beside(path, OLDER)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        flush_files(unfinished)
        if path.exists():
            path.rename(older)
        try:
            unfinished.rename(path)
        except BaseException:
            if older.exists():
                older.rename(path)
            raise
    finally:
        remove(unfinished)
    flush(path.parent)
    remove(older)


def followed(path: Path) -> Path:
    """The target of a symbolic link, so that the link stays when it is replaced; another path that has a name as is."""
    return Path(os.path.realpath(path)) if path.is_symlink() or path.name in ("", "..") else path


def _beside(path: Path, end: str) -> Path:
    """A hidden name beside ``path`` that says which process uses it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{PROCESS}{next(_names):x}{end}")


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


def clear_leftovers(folder: Path) -> None:
    """Remove the unfinished files of killed processes at any depth of ``folder``.

    Unfinished folders stay until ``recover`` for the folder that they become: another machine may be at work on them.
    """
    for path in folder.rglob(f".*{UNFINISHED}"):
        if path.is_file() and _abandoned(path):
            path.unlink(missing_ok=True)


def is_unfinished(name: str) -> bool:
    """Whether a file or folder of this name is one that a process is writing, or left unfinished."""
    return _LEFTOVER.fullmatch(name) is not None


def _abandoned(path: Path) -> re.Match[str] | None:
    """The parts of the name of what a process that has ended was writing; None for anything else."""
    found = _LEFTOVER.fullmatch(path.name)
    if found is None or os.name == "nt":  # Windows would end the process that is asked after
        return None
    if int(found[2]) == os.getpid():
        return None if found[3].startswith(PROCESS) else found
    try:
        os.kill(int(found[2]), 0)
    except (ProcessLookupError, OverflowError):
        return found
    except PermissionError:
        return None
    return None


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


def flush(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk, so that they survive a loss of power."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_files(folder: Path) -> None:
    """Put every file of a new ``folder`` on the disk, at any depth, readable as the folder is (``share``)."""
    for path in folder.rglob("*"):
        if path.is_dir():
            with contextlib.suppress(OSError):  # a library may have copied it with the modes of a read-only source
                path.chmod(path.stat().st_mode | folder.stat().st_mode & 0o777)
        elif path.is_file():
            share(path, folder)
            flush(path)


def share(path: Path, like: Path) -> None:
    """Let all read and write a file who may do so with ``like``: safetensors leaves its files to their owner alone."""
    with contextlib.suppress(OSError):  # file systems without modes
        path.chmod(path.stat().st_mode | like.stat().st_mode & 0o666)


# One writer at a time


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
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise
        yield True
        return
    with held:
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):  # Windows, where an open file stays
                path.unlink()


def made_once(folder: Path, make: Callable[[Path], None]) -> None:
    """Fill ``folder`` by ``make`` where it does not exist yet: one process does, others wait for it."""
    if folder.exists():
        return
    with locked(folder.with_name(f".{folder.name}{LOCK}"), wait=True):
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
    with locked((place.parent if beside else place) / f".{place.name}{LOCK}") as mine:
        if not mine:
            raise ConfigurationError(
                f'"{place}" is being written by another process: wait until it has ended, or give another output'
            )
        yield


@contextlib.contextmanager
def sole_output(output: str | Path, *, beside: Sequence[str] = (), **options: Any) -> Generator[Path]:
    """``check_output``, and the output is this process's alone meanwhile; what killed ones left beside it goes.

    Raises ConfigurationError also where another process is writing there.
    """
    place = check_output(output, beside=beside, **options)
    with only_writer(place):
        for end in ("", *beside):
            recover(place.with_name(place.name + end))
        yield place


def check_output(
    output: str | Path,
    *,
    inputs: Iterable[Any] = (),
    folder: bool = False,
    beside: Sequence[str] = (),
    models: bool = True,
) -> Path:
    """The path of ``output``, a file or a ``folder``, whose link is followed.

    ``inputs``: paths of what is read; names that are none are passed over. ``beside``: how the names of more files end
    that are written with it. ``models``: whether a folder may hold some. Raises ConfigurationError where the output is
    an input, in one or above one, where the other kind of thing is there, and as ``check_utf_8`` does.
    """
    place = followed(Path(output).expanduser())
    sources = [path for path in map(_existing, inputs) if path is not None]
    if folder and models:
        check_utf_8(place.absolute())
    for path in (place, *(place.with_name(place.name + end) for end in beside)):
        _check_apart(path, sources)
        _check_kind(path, folder=folder)
    return place


def _check_kind(place: Path, *, folder: bool) -> None:
    if place.exists() and not (place.is_dir() if folder else place.is_file()):
        there = "a folder" if place.is_dir() else "a file" if place.is_file() else "a device or pipe"
        raise ConfigurationError(f'the output "{place}" is {there}: give {"a folder" if folder else "a file"}')
    above = next(parent for parent in place.absolute().parents if os.path.lexists(parent))
    if not above.is_dir():
        raise ConfigurationError(f'the output "{place}" would be below "{above}", which is a file: give another output')


def _existing(name: Any) -> Path | None:
    """The path of an input; None for a text, a hub name, something in memory."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, TypeError, RuntimeError):
        return None


def _check_apart(place: Path, sources: Iterable[Path]) -> None:
    """Raise ConfigurationError where writing ``place`` would destroy an input, or the output be one next time."""
    target = Path(os.path.realpath(place))
    for path in sources:
        source = Path(os.path.realpath(path))
        holds = place.is_dir() and target in source.parents
        said = "is" if source == target else "is inside" if source in target.parents else "holds" if holds else ""
        if said:
            raise ConfigurationError(f'the output "{place}" {said} the input "{path}": give another output')


def check_utf_8(folder: str | Path) -> None:
    """Raise ConfigurationError for a name of a folder that is not UTF-8: safetensors and tokenizers take no other."""
    if str(folder) != str(folder).encode(errors="replace").decode():
        raise ConfigurationError(f'the name "{folder}" is not UTF-8, and no model can be there: rename it')


def entries(folder: Path, *, but: Collection[str] = ()) -> list[str]:
    """The names of what ``folder`` holds, ``but`` these and what is being written or locked."""
    found = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return [name for name in found if name not in but and name != f".{folder.name}{LOCK}" and not is_unfinished(name)]


# JSON, lines, and the identity of a run


@contextlib.contextmanager
def reading(path: str | Path, *, way_out: str, errors: tuple[type[Exception], ...] = DAMAGED) -> Generator[None]:
    """Turn what goes wrong while the content of ``path`` is read into CheckpointError; ``way_out``: what helps."""
    try:
        yield
    except LongformError:
        raise
    except errors as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(f'"{path}" is damaged ({said}): {way_out}') from error


def read_json(path: Path, *, way_out: str) -> dict[str, Any]:
    """The mapping that a file holds. Raises CheckpointError for a damaged file."""
    with reading(path, way_out=way_out):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}")
    return found


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON."""
    with atomic_write(path) as file:
        json.dump(value, file, indent=1)


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write rows as JSON lines."""
    with atomic_write(path) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_text(path: Path, text: str) -> None:
    """Write a text, in UTF-8."""
    with atomic_write(path) as file:
        file.write(text)


def whole_lines(file: IO[bytes], parse: Callable[[bytes], Any] = json.loads) -> Iterator[tuple[bytes, Any]]:
    """Lines of a file that is appended to, from its beginning, each with its value; those end before the first one that
    is cut off or damaged, as a killed process or a lost disk leaves it.

    ``parse``: makes the value of a line, or raises ValueError.
    """
    file.seek(0)
    for line in file:
        try:
            value = parse(line)
        except (ValueError, RecursionError):
            return
        if not line.endswith(b"\n"):
            return
        yield line, value


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """ "name: value there, value now" for all that differs, "settings.name: ..." inside mappings; absent is None."""
    now = json.loads(json.dumps(now))  # tuples become lists, as they are in ``before``
    found: list[str] = []
    for name in dict.fromkeys([*before, *now]):
        there, wanted = before.get(name), now.get(name)
        if isinstance(there, dict) and isinstance(wanted, dict):
            found += [f"{name}.{line}" for line in differences(there, wanted)]
        elif there != wanted:
            found.append(f"{name}: {there} there, {wanted} now")
    return found


def check_same(
    place: Path, before: Mapping[str, Any], now: Mapping[str, Any], *, otherwise: str = "another --output"
) -> None:
    """Raise ConfigurationError, naming each difference, where ``place`` was begun with another identity.

    ``otherwise``: the way out beside giving the same settings.
    """
    if changed := differences(before, now):
        raise ConfigurationError(
            f'"{place}" was begun with other settings or data ({"; ".join(changed)}): give the same, or {otherwise}'
        )


@dataclass(frozen=True)
class RunFile:
    """The JSON file that says which run ``place``, a folder or an unfinished output, belongs to.

    ``what``: what such a place holds; ``otherwise``: the way out beside giving the same settings; for messages.
    """

    path: Path
    place: Path
    what: str
    otherwise: str = "another --output"

    def read(self, *, begun: Sequence[str]) -> dict[str, Any] | None:
        """Its content, None for a new place. ``begun``: what the place holds beside the file, for a run to lose.

        Raises ConfigurationError for a place of something else, CheckpointError for a damaged file.
        """
        if self.path.exists():
            return read_json(self.path, way_out=f"give {self.otherwise}")
        if begun:
            raise ConfigurationError(
                f'"{self.place}" is not empty ({some(begun)}), and holds no {self.what} ({self.path.name} is missing): '
                "give another output folder (--output)"
            )
        return None

    def open(self, identity: Mapping[str, Any], *, begun: Sequence[str]) -> None:
        """Begin the run, or go on with the same. Raises what ``read`` raises, and for another identity.

        Where nothing is begun, a file is that of a command that was refused before it did anything, and replaced.
        """
        before = self.read(begun=begun) if begun else None
        if before is None:
            write_json(self.path, identity)
        else:
            check_same(self.place, before, identity, otherwise=self.otherwise)


def check_begun(folder: Path, name: str, *, what: str) -> None:
    """Raise ConfigurationError for a folder of something else: what opening it would say, before all is known."""
    RunFile(folder / name, folder, what).read(begun=entries(folder, but=(name,)))


def open_run_folder(
    folder: Path, name: str, identity: Mapping[str, Any], *, what: str, otherwise: str = "another --output"
) -> None:
    """Begin a run in ``folder``, whose file ``name`` holds its identity, or go on with it. Raises as RunFile.open."""
    RunFile(folder / name, folder, what, otherwise).open(identity, begun=entries(folder, but=(name,)))
    clear_leftovers(folder)
