"""Chunks and pieces of a text: runs of its tokens, and the characters that each stands for, exactly.

Axes: T tokens of the text, without special ones; m chunks. ``offsets`` (T, 2): characters from-to of each token.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import index
from typing import Any, NamedTuple

import numpy as np

from longform.choices import BOUNDARIES
from longform.errors import ConfigurationError, InputError
from longform_text.data.given import python_values

_ENDS = {
    "sentences": re.compile(r"(?:[.!?\u2026]+[\"'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f]\s*|\n\s*\n\s*)"),
    "paragraphs": re.compile(r"(?:\r\n|\r|\n)[^\S\r\n]*(?:\r\n|\r|\n)\s*"),
}
Spans = Sequence[tuple[int, int]]


class Chunk(NamedTuple):
    """Tokens ``first`` to ``end`` of a text, and characters ``start`` to ``stop``."""

    first: int
    end: int
    start: int
    stop: int


def chunks_of(
    text: str, offsets: np.ndarray, *, size: int = 256, overlap: int = 0, boundaries: str | Spans = "tokens"
) -> list[Chunk]:
    """Chunks of at most ``size`` tokens, in order; at least one, of no token for an empty text.

    ``boundaries``: where one may begin, at any "tokens" or with "sentences" or "paragraphs" (one of more than ``size``
    tokens is cut at tokens), or the characters from-to of every chunk. ``overlap``: tokens that a chunk shares with the
    one before it at most. No chunk begins inside a character, so one that is itself more than ``size`` tokens makes a
    longer chunk. Characters between tokens belong to the chunk before them; white space around a chunk is left out.
    """
    if not isinstance(boundaries, str):
        return _given(text, offsets, boundaries)
    if boundaries not in BOUNDARIES:
        raise ConfigurationError(
            f'boundaries is "{boundaries}"; it is {", ".join(BOUNDARIES)}, or pairs of characters from-to'
        )
    if size < 1 or not 0 <= overlap < size:
        raise ConfigurationError(f"chunks of {size} tokens that share {overlap}: size is 1 or more, overlap less")
    if not len(offsets):
        return [Chunk(0, 0, *_trimmed(text, 0, len(text)))]
    begins = _beginnings(offsets)
    chosen = begins if boundaries == "tokens" else _at_ends(text, offsets, begins, _ENDS[boundaries])
    return [_chunk(text, offsets, first, end) for first, end in _runs(begins, chosen, len(offsets), size, overlap)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Characters from-to of each sentence of ``text``, without the white space around it."""
    ends = [0, *(found.end() for found in _ENDS["sentences"].finditer(text)), len(text)]
    spans = (_trimmed(text, start, stop) for start, stop in pairwise(ends))
    return [(start, stop) for start, stop in spans if start < stop]


def _beginnings(offsets: np.ndarray) -> np.ndarray:
    """Tokens whose characters begin after those of all tokens before them; the first one, whatever it is."""
    reached = np.maximum.accumulate(offsets[:, 1])
    return np.flatnonzero(np.concatenate([[True], offsets[1:, 0] >= reached[:-1]]))


def _at_ends(text: str, offsets: np.ndarray, begins: np.ndarray, ends: re.Pattern[str]) -> np.ndarray:
    """First of ``begins`` at or after each end of a sentence or paragraph; the very first too."""
    characters = np.array([found.end() for found in ends.finditer(text)], dtype=np.int64)
    places = np.searchsorted(offsets[begins, 0], characters)
    return begins[np.unique([0, *places[places < len(begins)]])]


def _runs(begins: np.ndarray, chosen: np.ndarray, length: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Tokens from-to of each chunk."""
    stops, cuts = np.append(chosen, length), np.append(begins, length)

    def end_of(first: int) -> int:
        return _last(stops, first, first + size) or _last(cuts, first, first + size) or int(cuts[cuts > first][0])

    runs = [(0, end_of(0))]
    while (end := runs[-1][1]) < length:
        shared = stops[(stops >= end - overlap) & (stops <= end)]
        first = next((int(at) for at in shared if at > runs[-1][0] and end_of(int(at)) > end), end)
        runs.append((first, end_of(first)))
    return runs


def _last(places: np.ndarray, above: int, limit: int) -> int | None:
    """The last of the sorted ``places`` that is more than ``above`` and at most ``limit``."""
    at = int(np.searchsorted(places, limit, side="right")) - 1
    return int(places[at]) if at >= 0 and places[at] > above else None


def _chunk(text: str, offsets: np.ndarray, first: int, end: int) -> Chunk:
    start = int(offsets[first, 0]) if first else 0
    stop = int(offsets[end, 0]) if end < len(offsets) else len(text)
    return Chunk(first, end, *_trimmed(text, start, stop))


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """The characters from-to without white space around them."""
    inside = text[start:stop]
    begin = start + len(inside) - len(inside.lstrip())
    return (begin, begin + len(inside.strip())) if inside.strip() else (start, start)


def spans_of_each(given: Any, *, one: bool) -> Iterator[list[tuple[int, int]]]:
    """The spans of each text, given as lists, arrays or tensors of pairs; of ``one`` text also as they are.

    Raises InputError, with the number of the text, for what is no list of pairs of whole numbers.
    """
    listed = python_values(given)
    if not isinstance(listed, Iterable):
        raise InputError(f"boundaries is {given!r}; it is {', '.join(BOUNDARIES)}, or the spans of each text")
    if one:
        listed = [*map(python_values, listed)]
        listed = [listed] if listed and _is_pair(listed[0]) else listed
    for number, spans in enumerate(listed):
        try:
            yield [(index(start), index(stop)) for start, stop in map(python_values, python_values(spans))]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"boundaries has {str(spans)[:60]} for text number {number}: the spans of a text are a list of pairs "
                "of whole numbers, characters from-to, as [(0, 7), (8, 18)]"
            ) from error


def _is_pair(value: Any) -> bool:
    whole = isinstance(value, list | tuple) and all(isinstance(python_values(each), int) for each in value)
    return whole and len(value) == 2


def _given(text: str, offsets: np.ndarray, spans: Spans) -> list[Chunk]:
    """A chunk of the tokens that begin within each of ``spans``. Raises InputError for spans that are not in order."""
    before = 0
    chunks = []
    for start, stop in spans:
        if not before <= start < stop <= len(text):
            raise InputError(
                f"the span {start}-{stop} is not in order: spans are characters from-to of a text of {len(text):,}, "
                f"each begins where the one before it ends ({before}) or later, and none is empty"
            )
        first, end = np.searchsorted(offsets[:, 0], [start, stop]) if len(offsets) else (0, 0)
        if first == end:
            raise InputError(f"the span {start}-{stop} ({text[start:stop][:40]!r}) holds no token")
        chunks.append(Chunk(int(first), int(end), start, stop))
        before = stop
    if not chunks:
        raise InputError("there is no span: give the characters from-to of at least one")
    return chunks
