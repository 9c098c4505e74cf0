"""JSON of any size in bounded memory: long strings cut while it is read, the elements of an array one at a time."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from longform.data.files import PIECE, beginning
from longform.errors import DataError

MOST = 2**26  # characters of one record, after its long strings were cut
_IN_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BROKEN_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
_BETWEEN = re.compile(r"\s*(,?)\s*")
_DECODER, _END = json.JSONDecoder(), object()
_NEAR_THE_END = 16  # characters: an error there may be that of a value which goes on


def parsed(text: str, where: str) -> Any:
    """The value of a JSON text. Raises DataError that begins with ``where``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(error, where) from error


def _unreadable(error: Exception, where: str) -> DataError:
    if isinstance(error, RecursionError):
        return DataError(f"{where}: JSON nested too deeply to read")
    said = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
    return DataError(
        f'{where}: not valid JSON ({said}); a jsonl file has one object a line, such as {{"text": "..."}}, a json '
        "file an array of them"
    )


class Shortened:
    """JSON text whose strings are cut to ``most`` characters, as they stand there; ``unread`` counts those left out."""

    def __init__(self, parts: Iterable[str], most: int) -> None:
        self.parts, self.most, self.unread = parts, most, 0
        self._room: int | None = None  # of the string that is being read, None outside of strings

    def __iter__(self) -> Iterator[str]:
        rest = ""
        for part in self.parts:
            text, at = rest + part, 0
            broken = _BROKEN_ESCAPE.search(text) if "\\" in text[-6:] else None  # goes on in the next part
            end = broken.start(1) if broken else len(text)
            while at < end:
                piece, at = self._outside(text, at, end) if self._room is None else self._string(text, at, end)
                yield piece
            rest = text[end:]
        yield rest

    def _outside(self, text: str, at: int, end: int) -> tuple[str, int]:
        quote = text.find('"', at, end) + 1
        self._room = self.most if quote else None
        return text[at : quote or end], quote or end

    def _string(self, text: str, at: int, end: int) -> tuple[str, int]:
        match = _IN_STRING.match(text, at, end)
        assert self._room is not None
        assert match is not None
        end, full = match.end(), at + self._room
        kept = text[at : min(end, full)]
        if full < end and (broken := _BROKEN_ESCAPE.search(kept)):
            kept = kept[: broken.start(1)]
        self.unread += end - at - len(kept)
        closed = text.startswith('"', end)
        self._room = None if closed else max(0, full - end)
        return (kept + '"', end + 1) if closed else (kept, end)


def shortened(parts: Iterable[str], most: int | None, where: str) -> tuple[str, int]:
    """One JSON text with strings of at most ``most`` characters (None: whole), and the characters left out.

    Raises DataError where it is longer than any record may be even so.
    """
    if most is None:
        return "".join(parts), 0
    remaining, kept, size = iter(parts), [], 0
    for part in remaining:
        kept.append(part)
        size += len(part)
        if size > most:
            break
    else:
        return "".join(kept), 0
    cut = Shortened(chain(kept, remaining), most)
    text, beyond = beginning(cut, max(MOST, 4 * most))
    if beyond:
        raise DataError(f"{where}: a record of more than {len(text):,} characters beside its long texts")
    return text, cut.unread


def array_elements(parts: Iterable[str], *, name: str) -> Iterator[Any]:
    """The elements of the one JSON array in a text, one at a time. Raises DataError with the element's number."""
    remaining = iter(parts)
    text, at, number = next(remaining, "").lstrip(), 1, 0
    if not text.startswith("["):
        raise DataError(f"{name}: not a JSON array; one object a line is a .jsonl file")
    while True:
        try:
            value, end = _element(text, at, first=number == 0)
        except (ValueError, RecursionError) as error:
            more = _more(remaining, len(text) - at) if _may_go_on(error, text, at) else ""
            if not more:
                raise _unreadable(error, f"{name}, element {number}") from error
            text, at = text[at:] + more, 0
            continue
        if value is _END:
            break
        if end == len(text) and (more := _more(remaining, len(text) - at)):  # a number may go on
            text, at = text[at:] + more, 0
            continue
        yield value
        number, at = number + 1, end
    if text[end:].strip() or any(part.strip() for part in remaining):
        raise DataError(f"{name}: something follows the JSON array; a json file holds one array")


def _element(text: str, at: int, *, first: bool) -> tuple[Any, int]:
    """The value of the element that follows, or _END, and where it ends. Raises json's errors."""
    between = _BETWEEN.match(text, at)
    assert between is not None
    start, comma = between.end(), between[1]
    if text.startswith("]", start) and not comma:
        return _END, start + 1
    if bool(comma) == first:
        raise json.JSONDecodeError("Expecting one ',' between elements", text, start)
    return _DECODER.raw_decode(text, start)


def _may_go_on(error: Exception, text: str, at: int) -> bool:
    """Whether a value that cannot be read so far may only be cut off."""
    if not isinstance(error, json.JSONDecodeError) or len(text) - at > MOST:
        return False
    return error.msg.startswith("Unterminated string") or error.pos > len(text) - _NEAR_THE_END


def _more(parts: Iterator[str], known: int) -> str:
    """As much again as is ``known``, or a piece; nothing at the end."""
    found, size = [], 0
    while size < max(PIECE, known) and (part := next(parts, None)) is not None:
        found.append(part)
        size += len(part)
    return "".join(found)
