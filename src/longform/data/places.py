"""Files that are read in parts: in folders, by globs and by URIs of other file systems (``s3://``), through pyarrow."""

import fnmatch
import glob
import io
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from longform.data.files import (
    COMPRESSED,
    ENCODING,
    JSON_LINES,
    PARQUET,
    files_below,
    in_utf8,
    named_kind,
    once,
)
from longform.errors import DataError, require

HIDDEN = (".", "_")  # how names begin that are passed over
IN_PARTS = (JSON_LINES, PARQUET)  # kinds of files of which a range of rows can be read
_CODECS = dict(zip(COMPRESSED, ("gzip", "zstd"), strict=True))


class InputFile(NamedTuple):
    """``name``: as it was given, or found in what was given; ``place``: the same from any folder, or a URI.

    ``kind``: JSON_LINES or PARQUET. ``encoding``: of its text, None for UTF-8.
    """

    name: str
    place: str
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
    system, path, prefix, query = _located(source if "://" in source else str(Path(source)))
    above = path[: path.find("*")].rpartition("/")[0] if "*" in path else path
    listed = _listed(system, path, above, source)
    kinds = {each: named_kind(Path(each)) for each in listed if _is_meant(each, path, above)}
    others += (each for each, kind in kinds.items() if kind not in IN_PARTS)
    wanted = [each for each, kind in kinds.items() if kind in IN_PARTS]
    if not wanted:
        raise DataError(f'"{source}" has no .jsonl (also .gz, .zst) or .parquet files, which are read in parts')
    names = {each: prefix.named + each[len(prefix.path) :] + query for each in once(wanted)}
    return [_input_file(name, str(kinds[each])) for each, name in names.items()]


def _input_file(name: str, kind: str) -> InputFile:
    return InputFile(name, name if "://" in name else os.path.abspath(name), kind, ENCODING.get())


def _listed(system: Any, path: str, above: str, source: str) -> list[str]:
    fs, folder = require("pyarrow.fs", extra="cli"), above or "."
    try:
        if isinstance(system, fs.LocalFileSystem) and os.path.exists(folder):  # pyarrow would follow loops
            return glob.glob(path) if "**" not in path and path != above else files_below(folder, HIDDEN)
        info = system.get_file_info(above)
        every = [info] if info.is_file else []
        if info.type == fs.FileType.Directory:
            every = system.get_file_info(fs.FileSelector(above, recursive=True))
    except (OSError, ValueError) as error:  # ValueError: of names that are none
        raise DataError(f'"{source}" cannot be listed: {error}') from error
    if info.type == fs.FileType.NotFound:
        raise DataError(f'"{source}" does not exist')
    return sorted((each.path for each in every if each.is_file), key=lambda each: PurePosixPath(each).parts)


def _matches(path: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(path, pattern) and ("**" in pattern or path.count("/") == pattern.count("/"))


def _is_meant(path: str, pattern: str, above: str) -> bool:
    """Whether ``path``, found in the folder ``above``, is neither hidden there nor against a glob."""
    hidden = any(part.startswith(HIDDEN) for part in PurePosixPath(path[len(above) :]).parts)
    return not hidden and ("*" not in pattern or _matches(path, pattern))


def opened_place(file: InputFile, at: int = 0) -> IO[bytes]:
    """The bytes of a jsonl file from ``at`` on, decompressed and in UTF-8. Raises OSError."""
    system, path, *_ = _located(file.place)
    codec = _CODECS.get(Path(path).suffix.lower())
    if codec or file.encoding:
        raw = io.BufferedReader(system.open_input_stream(os.fsencode(path), compression=codec))
        stream = in_utf8(raw, file.encoding)
        while at > 0 and (passed := stream.read(min(at, 2**20))):
            at -= len(passed)
        return stream
    source = random_access(file)
    source.seek(at)
    return io.BufferedReader(source)


def random_access(file: InputFile) -> Any:
    """A file as pyarrow reads it, anywhere in it. Raises OSError."""
    system, path, *_ = _located(file.place)
    return system.open_input_file(os.fsencode(path))  # a name need not be UTF-8


class _Prefix(NamedTuple):
    """How all names of a file system begin, as URIs and as paths in it."""

    named: str = ""
    path: str = ""


def _located(place: str) -> tuple[Any, str, _Prefix, str]:
    """A pyarrow file system, the path in it, and how this is called outside: what comes before it, and after."""
    if "://" not in place:
        return require("pyarrow.fs", extra="cli").LocalFileSystem(), place, _Prefix(), ""
    parts = urlsplit(place)
    system, root = _system(parts.scheme, parts.netloc, parts.query)
    prefix = _Prefix(f"{parts.scheme}://{parts.netloc}", root.rstrip("/"))
    return system, prefix.path + parts.path.rstrip("/"), prefix, f"?{parts.query}" if parts.query else ""


@lru_cache(maxsize=64)
def _system(scheme: str, netloc: str, query: str) -> tuple[Any, str]:
    uri = f"{scheme}://{netloc}/{f'?{query}' if query else ''}"
    try:
        return require("pyarrow.fs", extra="cli").FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        raise DataError(f'"{uri}" cannot be opened: {error}') from error
