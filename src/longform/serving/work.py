"""Pieces of work: rows of token ids for the model, and the request that waits for all of its own."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from longform.data.batching import TokenizedText


class Work:
    """What one request waits for: ``future`` becomes the list of its pieces' results, in order.

    Belongs to the event loop's thread.
    """

    def __init__(self, future: "asyncio.Future[list[Any]]", count: int) -> None:
        self.future = future
        self._results: list[Any] = [None] * count
        self._left = count

    def settle(self, place: int, result: Any) -> None:
        """Take the result of one piece, or the exception in its place."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
            return
        self._results[place] = result
        self._left -= 1
        if not self._left:
            self.future.set_result(self._results)


@dataclass(eq=False)
class Piece:
    """One row of a batch: ``tokens``, and what is made of what the model gives for it.

    ``finish`` runs in a model's thread.
    """

    tokens: TokenizedText
    finish: Callable[[Any], Any]
    work: Work
    place: int
    arrived: float = field(default_factory=time.monotonic)

    @property
    def length(self) -> int:
        """In tokens."""
        return max(1, len(self.tokens.input_ids))
