"""The output of a command: whether it may be written, what of it is ours to replace, and one writer at a time.

Every command that writes asks here before it works. Refused is what would destroy an input, whatever its name there
(symbolic and hard links are followed), and what another process is writing. Of files that are there, only those that
Longform wrote are ever replaced or deleted.
"""

import contextlib
import os
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from longform.data.records import DATASET_PREFIX
from longform.data.storage import LOCK, followed, is_unfinished, only_writer, recover
from longform.data.text import STANDARD_INPUT
from longform.data.token_store import CorpusFiles
from longform.errors import ConfigurationError
from longform.runs.digest import file_key
from longform.runs.files import reading


def check_output(
    output: str | Path,
    *,
    inputs: Iterable[Any] = (),
    folder: bool = False,
    beside: Iterable[str] = (),
    models: bool = True,
) -> Path:
    """The path of ``output``, a file or a ``folder``, whose link is followed.

    ``inputs``: models and sources, by name, or lists of them; what is in memory is passed over. ``beside``: how the
    names of more files end that are written with it. ``models``: whether a folder may hold some. Raises
    ConfigurationError where the output is an input, in one or above one, where the other kind of thing is there, and
    as ``check_utf_8`` does.
    """
    place = followed(Path(output).expanduser())
    given = list(filter(_exists, _paths(inputs)))
    if folder and models:
        check_utf_8(place.absolute())
    for path in (place, *(place.with_name(place.name + end) for end in beside)):
        _check_apart(path, given)
        _check_kind(path, folder=folder)
    return place


def check_utf_8(folder: str | Path) -> None:
    """Raise ConfigurationError for a name of a folder that is not UTF-8: safetensors and tokenizers take no other."""
    if str(folder) != str(folder).encode(errors="replace").decode():
        raise ConfigurationError(f'the name "{folder}" is not UTF-8, and no model can be there: rename it')


@contextlib.contextmanager
def sole_output(output: str | Path, **options: Any) -> Generator[Path]:
    """``check_output``, and the output is this process's alone meanwhile; what killed ones left beside it goes.

    Raises ConfigurationError also where another process is writing there.
    """
    place = check_output(output, **options)
    with only_writer(place):
        for end in ("", *options.get("beside", ())):
            recover(place.with_name(place.name + end))
        yield place


def _paths(inputs: Iterable[Any]) -> Iterator[Path]:
    """Where inputs are on the disk, if they are."""
    for given in inputs:
        if isinstance(given, CorpusFiles | list):
            yield from _paths(given.sources if isinstance(given, CorpusFiles) else given)
        elif isinstance(given, str) and given == STANDARD_INPUT:
            yield Path("/dev/stdin")
        elif isinstance(given, str) and given.startswith(DATASET_PREFIX):
            yield Path(given.removeprefix(DATASET_PREFIX).partition(":")[0])
        elif isinstance(given, str | Path):
            yield Path(given).expanduser()


def _check_apart(place: Path, given: Iterable[Path]) -> None:
    """Raise ConfigurationError where writing ``place`` would destroy an input, or what is written be one next time."""
    target, found = Path(os.path.realpath(place)), place.exists()
    for path in given:
        source = Path(os.path.realpath(path))
        holds = place.is_dir() and target in source.parents
        is_input = found and place.samefile(path)
        if said := "is" if is_input else "is inside" if source in target.parents else "holds" if holds else "":
            raise ConfigurationError(f'the output "{place}" {said} "{path}", which is read: give another output')


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a text, a hub name
        return False


def _check_kind(place: Path, *, folder: bool) -> None:
    if place.exists() and not (place.is_dir() if folder else place.is_file()):
        there = "a folder" if place.is_dir() else "a file" if place.is_file() else "a device or pipe"
        raise ConfigurationError(f'the output "{place}" is {there}: give {"a folder" if folder else "a file"}')
    above = next(parent for parent in place.absolute().parents if os.path.lexists(parent))
    if not above.is_dir():
        raise ConfigurationError(f'the output "{place}" would be below "{above}", which is a file: give another output')


def entries(folder: Path, *, but: Collection[str] = ()) -> list[str]:
    """The names of what ``folder`` holds, ``but`` these and what is being written or locked."""
    found = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return [name for name in found if name not in but and name != f".{folder.name}{LOCK}" and not is_unfinished(name)]


def files_in(folder: Path) -> list[str]:
    """The names of all files, at any depth, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def digests(folder: Path) -> dict[str, str]:
    """The key of each file, by which it is known again (``foreign``)."""
    return {name: file_key(folder / name) for name in files_in(folder)}


def foreign(folder: Path, written: Mapping[str, str], *, but: Collection[str] = ()) -> list[str]:
    """Names in ``folder`` ``but`` these that we did not write, or that were changed since.

    ``written``: ``digests`` of when it was written.
    """
    ours = {name for name in written if (folder / name).is_file()}
    folders = {parent.as_posix() for name in (*written, *but) for parent in Path(name).parents}
    there = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    unknown = sorted(name for name in there if name not in (*ours, *but, *folders))
    return unknown or sorted(
        name
        for name in ours
        if not str(written[name]).startswith(file_key(folder / name))  # older reports: whole digests
    )


def check_names(names: Any, listed: Path) -> None:
    """Raise CheckpointError where a name leads out of the folder of the file ``listed``, which lists what is in it."""
    folder = os.path.realpath(listed.parent)
    with reading(listed, way_out="give another output folder"):
        if not isinstance(names, list):
            raise TypeError("its list of files is none")
        for name in names:
            above = Path(os.path.realpath((listed.parent / name).parent))
            if not above.is_relative_to(folder) or Path(name).name in ("", "..") or "\0" in name:
                raise ValueError(f'its file "{name}" is elsewhere')
