"""Blocks of n tokens, cut from documents whose boundaries are marked.

Axes: B blocks, n tokens of a block, special ones included.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from longform.choices import PACKINGS
from longform.data.batching import padded
from longform.data.special_tokens import SpecialTokens
from longform.data.token_store import TokenStore
from longform.errors import ConfigurationError

FULL, DOCUMENTS = PACKINGS
SEPARATOR = -1  # the place of a token that stands between two documents and in none


class BlockFrame(NamedTuple):
    """The ids of a block that are not text: special tokens at its ends, the separator of documents, padding."""

    special: SpecialTokens
    separator: int | None
    padding: int

    def content(self, length: int) -> int:
        """Content tokens of a block of ``length``. Raises ConfigurationError where there is no room for any."""
        if length <= self.special.total:
            raise ConfigurationError(f"length={length} leaves no room beside {self.special.total} special tokens")
        return length - self.special.total

    def stack(self, contents: Sequence[np.ndarray], length: int) -> tuple[Tensor, Tensor]:
        """Blocks long (B, n) of content tokens, framed, and padded on the right to ``length``; their mask (B, n)."""
        prefix, suffix = self.special
        framed = [np.concatenate((prefix, content, suffix)) for content in contents]
        return padded(framed, value=self.padding, length=length)


class Blocks:
    """Blocks of n tokens cut from ``documents`` of a store (indices), in their order; any of them is found at once.

    ``packing`` "full": each block is full and may hold several documents, a separator between them (RoBERTa's
    FULL-SENTENCES); "documents": no block holds two documents, and the last one of each is shorter. A remainder that
    does not fill a block is left out, or kept with ``keep_rest``.
    """

    def __init__(
        self, store: TokenStore, documents: np.ndarray, frame: BlockFrame, *, length: int, packing: str = FULL,
        keep_rest: bool = False,
    ) -> None:  # fmt: skip
        if packing not in PACKINGS:
            raise ConfigurationError(f'packing="{packing}"; it is one of {", ".join(PACKINGS)}')
        self.store, self.documents, self.frame, self.length = store, documents, frame, length
        self.content = frame.content(length)
        self.separate = packing == DOCUMENTS
        self.between = 0 if self.separate or frame.separator is None else 1
        lengths = store.lengths()[documents]
        if self.separate:
            self.edges = np.cumsum(-(-lengths // self.content))  # blocks up to the end of each document
            self.count = int(self.edges[-1]) if len(lengths) else 0
        else:
            self.edges = np.cumsum(lengths + self.between)  # tokens up to the end of each document and its separator
            self.total = int(self.edges[-1]) - self.between if len(lengths) else 0
            self.count = -(-self.total // self.content) if keep_rest else self.total // self.content

    def __len__(self) -> int:
        return self.count

    def contents(self, number: int) -> np.ndarray:
        """The content tokens of one block: int64, at most n less the special ones."""
        places = self.places(number)
        found = self.store.tokens[np.maximum(places, 0)].astype(np.int64)
        return found if self.frame.separator is None else np.where(places < 0, self.frame.separator, found)

    def places(self, number: int) -> np.ndarray:
        """For each content token of one block its place in the store, or SEPARATOR; the same at every length."""
        return self._in_document(number) if self.separate else self._in_stream(number)

    def _in_document(self, number: int) -> np.ndarray:
        which, before = self._containing(number)
        first, end = self._span(which)
        start = first + (number - before) * self.content
        return np.arange(start, min(end, start + self.content))

    def _in_stream(self, number: int) -> np.ndarray:
        start, stop = number * self.content, min(self.total, (number + 1) * self.content)
        which, before = self._containing(start)
        parts = []
        while start < stop:
            first, end = self._span(which)
            inside = np.arange(first + start - before, min(end, first + stop - before))
            parts.append(inside)
            start += len(inside)
            if start < stop and self.between:
                parts.append(np.array([SEPARATOR]))
                start += 1
            before = int(self.edges[which])
            which += 1
        return np.concatenate(parts)

    def _containing(self, number: int) -> tuple[int, int]:
        """The document in which a block or token of the stream lies, and how many come before that document."""
        which = int(np.searchsorted(self.edges, number, side="right"))
        return which, int(self.edges[which - 1]) if which else 0

    def _span(self, which: int) -> tuple[int, int]:
        document = int(self.documents[which])
        return (int(self.store.ends[document - 1]) if document else 0), int(self.store.ends[document])
