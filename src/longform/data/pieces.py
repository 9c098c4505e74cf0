"""Pieces of a long text, cut where tokenizers cut too, so that their tokens are those of the text.

A tokenizer takes some 200 bytes a character while it works: a text of 50 MB would take 8 GB at once.
"""

import re
from collections.abc import Iterator

PIECE = 2**16  # characters that are tokenised together
NEAR = 2**12  # characters before the end of a piece among which a place to cut is looked for
# A space between a letter or digit and another: word pieces, byte pairs and unigrams alike begin a token there.
_BOUNDARY = re.compile(r"(?<=[^\W_])[ \n](?=[^\W_])")


def boundary(text: str, end: int, *, near: int = NEAR) -> int | None:
    """The last place before ``end``, at most ``near`` characters, where a tokenizer cuts too; None: there is none."""
    places = [match.start() for match in _BOUNDARY.finditer(text, max(0, end - near), end)]
    return places[-1] if places and places[-1] else None


def pieces(text: str, *, start: int = 0, size: int = PIECE) -> Iterator[str]:
    """``text`` from ``start`` on, in pieces of at most ``size`` characters, cut anywhere where no boundary is near."""
    while len(text) - start > size:
        end = boundary(text, start + size, near=min(NEAR, size - 1)) or start + size
        yield text[start:end]
        start = end
    yield text[start:]
