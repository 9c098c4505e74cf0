"""Files that texts are read from: the one table of their kinds, and their content in pieces of bounded size."""

import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import IO, Any

from longform.errors import ConfigurationError, DataError, require

TEXT, JSON_LINES, JSON, CSV, TSV, PARQUET = "text", "jsonl", "json", "csv", "tsv", "parquet"
SAVED = "saved"  # a folder that ``datasets`` saved
KINDS = {
    ".txt": TEXT,
    ".text": TEXT,
    ".md": TEXT,
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
    ".json": JSON,
    ".csv": CSV,
    ".tsv": TSV,
    ".parquet": PARQUET,
}
COMPRESSED = (".gz", ".zst")
READ = (
    ".txt, .text or .md (one document), .jsonl, .ndjson, .json (an array), .csv or .tsv (with a header), each also as "
    ".gz or .zst, .parquet, or a folder that datasets saved (one document a record)"
)
PIECE = 2**16  # bytes or characters that are read together
LOOKED_AT = 8192  # bytes at the beginning of a file that show whether it is text
ENCODING: ContextVar[str | None] = ContextVar("encoding", default=None)  # of all files of text; None: UTF-8


def named_kind(path: Path) -> str | None:
    """The kind of file that a name says, ".CSV.gz" and ".csv" the same; None where such files are not read."""
    suffix, compressed = _suffix(path)
    kind = KINDS.get(suffix)
    return None if compressed and kind == PARQUET else kind


def _suffix(path: Path) -> tuple[str, bool]:
    """The suffix in small letters without that of a compression, and whether there is one."""
    compressed = path.suffix.lower() in COMPRESSED
    return Path(path.stem if compressed else path.name).suffix.lower(), compressed


def file_kind(path: Path) -> str:
    """The kind of an existing file by its name and, without a suffix, its content: plain text is text.

    Raises DataError, with the kinds there are, for a file of another.
    """
    if is_saved(path):
        return SAVED
    kind, suffix = named_kind(path), _suffix(path)[0]
    if not path.is_file():  # a pipe: looking at it would take its content
        kind = kind or TEXT
    elif kind is None and not suffix and is_text(path):
        kind = TEXT
    if kind is None:
        what = f'has the suffix "{suffix}"' if is_text(path) else "is binary, not text in UTF-8"
        raise DataError(f'"{path}" {what}; what is read is {READ}. Text under another name: rename it to .txt')
    if kind == JSON and not holds_array(path):
        raise DataError(f'"{path}" is no JSON array of objects or texts; one object a line is a .jsonl file')
    return kind


def is_saved(path: Path) -> bool:
    """Whether a folder was written by ``save_to_disk`` of the ``datasets`` library: one data set, or several splits."""
    return (path / "dataset_dict.json").is_file() or all(
        (path / name).is_file() for name in ("state.json", "dataset_info.json")
    )


def is_text(path: Path) -> bool:
    """Whether a file begins like text: UTF-8 without NUL."""
    with opened(path) as file:
        beginning = file.read(LOOKED_AT)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(beginning)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return b"\x00" not in beginning


def holds_array(path: Path) -> bool:
    """Whether a file begins like a JSON array; a pipe is not looked at."""
    if not path.is_file():
        return True
    with opened(path) as file:
        return file.read(LOOKED_AT).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


MARKS = {  # the longer one first of two that begin alike
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
NUL_SHARE = 1 / 20  # of every other byte, from which a text is UTF-16: all spaces, ends of lines and ASCII have one


def marked_encoding(beginning: bytes) -> str | None:
    """The encoding other than UTF-8 that a text's beginning shows: by a mark, or UTF-16 by NUL in every other byte."""
    for mark, encoding in MARKS.items():
        if beginning.startswith(mark):
            return encoding
    even, odd = (beginning[first::2].count(0) for first in (0, 1))
    if min(even, odd) or len(beginning) % 2 or 2 * max(even, odd) < max(1, NUL_SHARE * len(beginning)):
        return None
    return "utf-16-be" if even else "utf-16-le"


def in_utf8(file: IO[bytes], encoding: str | None) -> IO[bytes]:
    """The bytes of a text in ``encoding`` as UTF-8. Raises ConfigurationError for an encoding that Python lacks."""
    if encoding is None:
        return file
    arrow = require("pyarrow", extra="cli")
    try:
        "x".encode(encoding)
        return io.BufferedReader(arrow.transcoding_input_stream(arrow.PythonFile(file, mode="r"), encoding, "utf-8"))
    except LookupError as error:
        raise ConfigurationError(f'encoding is "{encoding}"; it is utf-8, cp1252, utf-16, ... ({error})') from error


@contextmanager
def opened(path: Path | None) -> Generator[IO[bytes]]:
    """The bytes of a file of text (None: standard input), decompressed, in UTF-8 or what they are instead.

    Raises DataError, also from what reads them, where they cannot be had.
    """
    encoding = ENCODING.get()
    try:
        with binary(path) as file:
            encoding = marked_encoding(file.peek(LOOKED_AT)[:LOOKED_AT]) or encoding if path else encoding
            yield in_utf8(file, encoding)
    except UnicodeError as error:
        raise DataError(f'"{path or "-"}" is not in {encoding}: {error}') from error


@contextmanager
def binary(path: Path | None) -> Generator[Any]:
    """The bytes of a file (None: standard input), decompressed. Raises DataError, also from what reads them."""
    try:
        with _open(path) if path else nullcontext(sys.stdin.buffer) as file:
            yield file
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f'"{path}" cannot be decompressed: {error}') from error


def _open(path: Path) -> Any:
    suffix = path.suffix.lower()
    if suffix == ".zst":
        return io.BufferedReader(require("pyarrow", extra="cli").input_stream(path.open("rb"), compression="zstd"))
    return gzip.open(path) if suffix == ".gz" else path.open("rb")


def parts(file: IO[bytes]) -> Iterator[bytes]:
    """Content of a file, in pieces."""
    return iter(lambda: file.read(PIECE), b"")


def decoded(content: Iterable[bytes], name: str, line: int = 1) -> Iterator[str]:
    """Bytes in UTF-8 as characters, without a mark at the beginning, which is in ``line`` of ``name``.

    Raises DataError, with the line, for bytes that are not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    for piece in chain(content, (b"",)):
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            line, byte = line + error.object.count(b"\n", 0, error.start), error.object[error.start]
            raise DataError(
                f"{name}, line {line}: the byte {byte:#04x} is not UTF-8: name the file's encoding, as in --encoding "
                'cp1252 (Python: longform_text.data.files.ENCODING.set("cp1252"))'
            ) from error
        line += text.count("\n")
        yield text


def files_below(folder: str | Path, but: tuple[str, ...] = (), *, unread: dict[str, str] | None = None) -> list[str]:
    """Files in a folder, at any depth, and in folders that links lead to, none of which is entered twice, or is
    above it; of a file itself. ``but``: how names begin that are passed over.

    ``unread`` is filled with folders that cannot be listed and links that lead nowhere, and why; without it an OSError
    is raised for the first, and the others are passed over.
    """
    if os.path.isfile(folder):
        return [str(folder)]
    folders, links, entered, found = [str(folder)], [], {*map(str, Path(os.path.realpath(folder)).parents)}, []
    while place := folders.pop() if folders else links.pop() if links else "":  # what links lead to comes last
        if (real := os.path.realpath(place)) in entered:
            continue
        entered.add(real)
        for path in (os.path.join(place, name) for name in _listed(place, unread) if not name.startswith(but)):
            if os.path.isdir(path):
                (links if os.path.islink(path) else folders).append(path)
            elif os.path.isfile(path):
                found.append(path)
            else:
                _note_link(path, unread)
    return found


def _note_link(path: str, unread: dict[str, str] | None) -> None:
    if unread is not None and os.path.islink(path):
        unread[path] = "a link that leads nowhere"


def _listed(folder: str, unread: dict[str, str] | None) -> list[str]:
    """Names in a folder, sorted; of one that cannot be listed none, where ``unread`` takes the reason."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        if unread is None:
            raise
        unread[folder] = f"a folder that cannot be listed ({error.strerror})"
        return []


def reason_of(error: Exception) -> str:
    """Why a file is passed over, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def once(paths: Iterable[str]) -> list[str]:
    """Files sorted, each once: of several names the first one that is no link."""
    found: dict[str, str] = {}
    for path in sorted(paths, key=os.path.islink):
        found.setdefault(os.path.realpath(path), path)
    return sorted(found.values(), key=lambda path: Path(path).parts)


def beginning(content: Iterable[str], most: int | None) -> tuple[str, int]:
    """The first ``most`` characters of all (None: every one), and how many there are beyond them."""
    kept, beyond, room = [], 0, most
    for part in content:
        taken = part[:room]
        kept.append(taken)
        beyond += len(part) - len(taken)
        room = None if room is None else room - len(taken)
    return "".join(kept), beyond
