"""Where the blocks of each step come from: a cached corpus in a new random order every pass, or a stream.

The blocks of step s are the same whatever came before: a cached corpus finds them at once, a stream by reading again.
"""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np

from longform.data.packing import DOCUMENTS, BlockFrame, Blocks
from longform.data.token_store import Corpus, CorpusTexts, tokenized
from longform.errors import DataError


class Supply(Protocol):
    """``blocks``: in one pass over the corpus, or None where nobody knows."""

    blocks: int | None

    def steps(self, start: int, size: int) -> Iterator[list[np.ndarray]]:
        """The content of ``size`` blocks for each step from ``start`` on, without end."""


class CachedSupply:
    """Blocks of a cached corpus; each pass has an order of its own."""

    def __init__(self, cached: Blocks, seed: int) -> None:
        self.cached, self.seed = cached, seed
        self.blocks: int | None = len(cached)

    def steps(self, start: int, size: int) -> Iterator[list[np.ndarray]]:
        """See Supply."""
        numbers = self._numbers(start * size)
        while True:
            yield [self.cached.contents(number) for number in islice(numbers, size)]

    def _numbers(self, start: int) -> Iterator[int]:
        count = len(self.cached)
        epoch, skipped = divmod(start, count)
        while True:
            yield from np.random.default_rng((self.seed, epoch)).permutation(count)[skipped:].tolist()
            epoch, skipped = epoch + 1, 0


class StreamedSupply:
    """Blocks of documents that are tokenised as they come; ``held_out`` documents at the beginning are left out.

    ``pool``: blocks among which a step's are drawn.
    """

    blocks: int | None = None

    def __init__(
        self, corpus: Corpus, tokenizer: Any, frame: BlockFrame, *, length: int, packing: str, pool: int, seed: int,
        held_out: int = 0, max_documents: int | None = None,
    ) -> None:  # fmt: skip
        self.corpus, self.tokenizer, self.frame, self.content = corpus, tokenizer, frame, frame.content(length)
        self.packing, self.pool, self.seed = packing, pool, seed
        self.held_out, self.max_documents = held_out, max_documents

    def documents(self) -> Iterator[list[int]]:
        """Content token ids of each document of one pass."""
        return tokenized(CorpusTexts(self.corpus, self.max_documents), self.tokenizer)

    def steps(self, start: int, size: int) -> Iterator[list[np.ndarray]]:
        """See Supply."""
        picks = random.Random(f"stream {self.seed}")
        contents, pool, step = self._contents(size), [], 0
        while True:
            pool.extend(islice(contents, max(self.pool, size) - len(pool)))
            drawn = []
            for _ in range(size):
                place = picks.randrange(len(pool))
                pool[place], pool[-1] = pool[-1], pool[place]
                drawn.append(pool.pop())
            if step >= start:
                yield drawn
            step += 1

    def _contents(self, least: int) -> Iterator[np.ndarray]:
        """Blocks of one pass after the other. Raises DataError when a pass has fewer than ``least``."""
        while True:
            found = tokens = 0
            for block in self._packed():
                found, tokens = found + 1, tokens + len(block)
                yield block
            if found < least:
                raise DataError(too_small(found, tokens, least, self.content + self.frame.total))

    def _packed(self) -> Iterator[np.ndarray]:
        waiting: list[int] = []
        for ids in islice(self.documents(), self.held_out, None):
            if self.packing == DOCUMENTS:
                yield from (np.asarray(ids[at : at + self.content]) for at in range(0, len(ids), self.content))
                continue
            if waiting and self.frame.separator is not None:
                waiting.append(self.frame.separator)
            waiting += ids
            full = len(waiting) // self.content * self.content
            yield from np.asarray(waiting[:full], dtype=np.int64).reshape(-1, self.content)
            waiting = waiting[full:]


def too_small(blocks: int, tokens: int, least: int, length: int) -> str:
    """What to say of a corpus that does not fill one step."""
    return (
        f"the corpus is smaller than one batch: {tokens:,} tokens to train on give {blocks} block(s) of "
        f"length={length}, a step takes {least}. Lower tokens_per_step or length, or give more text"
    )
