"""Files that are read in parts: in folders, by globs and by URIs of other file systems (``s3://``), through pyarrow."""

import fnmatch
import glob
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from longform.errors import DataError, require
from longform_text.data.files import (
    COMPRESSED,
    ENCODING,
    JSON_LINES,
    PARQUET,
    files_below,
    in_utf8,
    named_kind,
    once,
)

HIDDEN = (".", "_")  # how names begin that are passed over
IN_PARTS = (JSON_LINES, PARQUET)  # kinds of files of which a range of rows can be read
_CODECS = dict(zip(COMPRESSED, ("gzip", "zstd"), strict=True))


class InputFile(NamedTuple):
    """``name``: as it was given, or found in what was given; ``path``: its place in ``system``, one of pyarrow's.

    ``kind``: JSON_LINES or PARQUET. ``encoding``: of its text, None for UTF-8.
    """

    name: str
    system: Any
    path: str
    kind: str
    encoding: str | None = None


def input_files(sources: Iterable[str | Path], passed_over: list[str] | None = None) -> list[InputFile]:
    """The jsonl and parquet files of names, folders (at any depth, sorted), globs and URIs of these, in order.

    In a glob "*" stands for anything but "/", "**" for anything. Files whose names begin with "." or "_", or that are
    in such folders, are passed over; ``passed_over`` gets the names of all others that are. Raises DataError for a
    source without such files, or that cannot be listed.
    """
    others: list[str] = [] if passed_over is None else passed_over
    return [file for source in sources for file in _found(str(source), others)]


def _found(source: str, others: list[str]) -> list[InputFile]:
    local = require("pyarrow.fs", extra="cli").LocalFileSystem
    system, pattern, name_of = _elsewhere(source) if "://" in source else (local(), str(Path(source)), str)
    kinds = {path: named_kind(Path(path)) for path in _listed(system, pattern, source) if _is_meant(path, pattern)}
    others += (path for path, kind in kinds.items() if kind not in IN_PARTS)
    wanted = once(path for path, kind in kinds.items() if kind in IN_PARTS)
    if not wanted:
        raise DataError(f'"{source}" has no .jsonl (also .gz, .zst) or .parquet files, which are read in parts')
    places = [os.path.abspath(path) if isinstance(system, local) else path for path in wanted]
    return [
        InputFile(name_of(path), system, place, str(kinds[path]), ENCODING.get())
        for path, place in zip(wanted, places, strict=True)
    ]


def _elsewhere(uri: str) -> tuple[Any, str, Callable[[str], str]]:
    """The file system of a URI, the path in it, and the URI of any path in it."""
    scheme, netloc, path, query, _ = urlsplit(uri)
    start, end = f"{scheme}://{netloc}", f"?{query}" if query else ""
    try:
        system, root = require("pyarrow.fs", extra="cli").FileSystem.from_uri(f"{start}/{end}")
    except (OSError, ValueError) as error:
        raise DataError(f'"{start}/{end}" cannot be opened: {error}') from error
    root = root.rstrip("/")
    return system, root + path.rstrip("/"), lambda found: start + found.removeprefix(root) + end


def _above(pattern: str) -> str:
    """The folder that a glob begins with; another path itself."""
    return pattern.partition("*")[0].rpartition("/")[0] if "*" in pattern else pattern


def _listed(system: Any, pattern: str, source: str) -> list[str]:
    fs, above = require("pyarrow.fs", extra="cli"), _above(pattern)
    folder = above or "."
    try:
        if isinstance(system, fs.LocalFileSystem) and os.path.exists(folder):  # pyarrow would follow loops
            return glob.glob(pattern) if "**" not in pattern and pattern != above else files_below(folder, HIDDEN)
        info = system.get_file_info(above)
        every = [info] if info.is_file else []
        if info.type == fs.FileType.Directory:
            every = system.get_file_info(fs.FileSelector(above, recursive=True))
    except (OSError, ValueError) as error:  # ValueError: of names that are none
        raise DataError(f'"{source}" cannot be listed: {error}') from error
    if info.type == fs.FileType.NotFound:
        raise DataError(f'"{source}" does not exist')
    return sorted((each.path for each in every if each.is_file), key=lambda each: PurePosixPath(each).parts)


def _is_meant(path: str, pattern: str) -> bool:
    """Whether ``path``, found in the folder that ``pattern`` begins with, is neither hidden there nor against it."""
    if any(part.startswith(HIDDEN) for part in PurePosixPath(path[len(_above(pattern)) :]).parts):
        return False
    deep = "**" in pattern or path.count("/") == pattern.count("/")
    return "*" not in pattern or (deep and fnmatch.fnmatchcase(path, pattern))


def opened_place(file: InputFile, at: int = 0) -> IO[bytes]:
    """The bytes of a jsonl file from ``at`` on, decompressed and in UTF-8. Raises OSError."""
    codec = _CODECS.get(Path(file.path).suffix.lower())
    if codec or file.encoding:
        raw = io.BufferedReader(file.system.open_input_stream(os.fsencode(file.path), compression=codec))
        stream = in_utf8(raw, file.encoding)
        while at > 0 and (passed := stream.read(min(at, 2**20))):
            at -= len(passed)
        return stream
    source = random_access(file)
    source.seek(at)
    return io.BufferedReader(source)


def random_access(file: InputFile) -> Any:
    """A file as pyarrow reads it, anywhere in it. Raises OSError."""
    return file.system.open_input_file(os.fsencode(file.path))  # a name need not be UTF-8
