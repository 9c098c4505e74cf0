"""Pairs made of one text without queries: a part of it asks for the rest.

A sentence or passage is taken from what is read of the text, and is not left in it: else the query would be found by
its words alone.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from longform.data.spans import sentence_spans

FEWEST_WORDS, MOST_WORDS = 6, 100  # of a sentence that asks; of a passage
FEWEST_SENTENCES = 4  # of a text that is parted
LONGEST_TITLE = 200  # characters


class MadePair(NamedTuple):
    """A query, and the document that it asks for; ``at``: the character where it stood in it, if at one place."""

    query: str
    document: str
    at: int | None = None


def made_pair(kind: str, text: str, title: str | None, draw: random.Random) -> MadePair | None:
    """The pair of a ``kind`` (``longform.choices.PAIR_KINDS``) of ``text``; None where it has too little for that."""
    return _KINDS[kind](text, title, draw)


def _sentence(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    spans = sentence_spans(text)
    usable = [span for span in spans if FEWEST_WORDS <= _words(text, span) <= MOST_WORDS]
    return _without(text, *draw.choice(usable)) if len(spans) >= FEWEST_SENTENCES and usable else None


def _passage(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    spans = sentence_spans(text)
    words = [_words(text, span) for span in spans]
    most = min(MOST_WORDS, sum(words) // 3)
    usable = [place for place, count in enumerate(words) if count <= most]
    if len(spans) < FEWEST_SENTENCES or not usable:
        return None
    first = last = draw.choice(usable)
    while last + 1 < len(spans) and sum(words[first : last + 2]) <= most:
        last += 1
    return _without(text, spans[first][0], spans[last][1])


def _title(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    if title is not None:
        rest = text.strip().removeprefix(title.strip()).strip()
    else:
        title, _, rest = text.strip().partition("\n")
    return MadePair(title.strip(), rest.strip()) if 0 < len(title.strip()) <= LONGEST_TITLE and rest.strip() else None


def _halves(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    spans = sentence_spans(text)
    if len(spans) < FEWEST_SENTENCES:
        return None
    middle = min((start for start, _ in spans[1:]), key=lambda start: abs(start - len(text) // 2))
    return MadePair(text[:middle].strip(), text[middle:].strip())


def _without(text: str, start: int, stop: int) -> MadePair | None:
    before, after = text[:start].strip(), text[stop:].strip()
    rest = f"{before} {after}".strip()
    return MadePair(text[start:stop].strip(), rest, min(len(before), len(rest) - 1)) if rest else None


def _words(text: str, span: tuple[int, int]) -> int:
    return len(text[span[0] : span[1]].split())


_KINDS: dict[str, Callable[[str, str | None, random.Random], MadePair | None]] = {
    "sentence": _sentence, "passage": _passage, "title": _title, "halves": _halves,
}  # fmt: skip
