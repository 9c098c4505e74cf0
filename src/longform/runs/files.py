"""JSON files of a run: written whole or not at all, and read with an error that says what to do about a damaged one;
files of lines that are appended to are read as far as they are whole.
"""

import contextlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from longform.data.storage import atomic_write
from longform.errors import CheckpointError, LongformError

DAMAGED = (OSError, ValueError, TypeError, KeyError, IndexError, RuntimeError)


@contextlib.contextmanager
def reading(path: Path, *, way_out: str, errors: tuple[type[Exception], ...] = DAMAGED) -> Generator[None]:
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
