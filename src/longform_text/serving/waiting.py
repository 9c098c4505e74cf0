"""The pieces that wait for the model, in two lanes that take turns.

So a long document holds short texts up for its own pass at most, and short ones never keep a long one waiting for good.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from longform_text.data.batching import TokenizedText, group_by_length


class Work:
    """Work that one request waits for: ``future`` becomes the list of its pieces' results, in order.

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


LONG = 1024  # tokens of a piece of the second lane
SEEN = 512  # pieces of a lane, oldest first, that a batch is chosen from


class Waiting:
    """A queue of pieces; ``take`` gives batches of similar length, of at most ``batch_tokens`` with padding.

    ``wait``: seconds that a piece waits for others at most. Every method may be called from any thread.
    """

    def __init__(self, *, batch_tokens: int, wait: float) -> None:
        self.batch_tokens, self.wait = batch_tokens, wait
        self._lanes: tuple[dict[Piece, None], dict[Piece, None]] = ({}, {})  # in order of arrival
        self._turn = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, pieces: Iterable[Piece]) -> bool:
        """Append pieces; False where nothing is taken any more."""
        with self._changed:
            if self._closed:
                return False
            for piece in pieces:
                self._lanes[piece.length > LONG][piece] = None
            self._changed.notify_all()
        return True

    def discard(self, work: Work) -> None:
        """Forget the pieces of a request that nobody waits for."""
        with self._changed:
            for lane in self._lanes:
                for piece in [piece for piece in lane if piece.work is work]:
                    del lane[piece]

    def close(self) -> None:
        """Take nothing any more, forget all pieces, and let ``take`` end."""
        with self._changed:
            self._closed = True
            for lane in self._lanes:
                lane.clear()
            self._changed.notify_all()

    def take(self) -> list[Piece] | None:
        """The next batch, as soon as it is full or its oldest piece has waited long enough; None once closed."""
        with self._changed:
            while not self._closed:
                turn = self._turn if self._lanes[self._turn] else 1 - self._turn
                lane = self._lanes[turn]
                if not lane:
                    self._changed.wait()
                elif (left := self._time_left(lane)) > 0:
                    self._changed.wait(left)
                else:
                    self._turn = 1 - turn
                    return self._batch(lane)
        return None

    def counts(self) -> tuple[int, int]:
        """Pieces that wait, and their tokens."""
        with self._changed:
            pieces = [piece for lane in self._lanes for piece in lane]
        return len(pieces), sum(piece.length for piece in pieces)

    def _time_left(self, lane: dict[Piece, None]) -> float:
        left = next(iter(lane)).arrived + self.wait - time.monotonic()
        if left > 0 and sum(piece.length for piece in lane) >= self.batch_tokens:
            return 0.0
        return left

    def _batch(self, lane: dict[Piece, None]) -> list[Piece]:
        """The oldest piece, and those of its length that fit beside it."""
        seen = list(islice(lane, SEEN))
        groups = group_by_length([piece.length for piece in seen], self.batch_tokens)
        chosen = next(group for group in groups if 0 in group)
        pieces = [seen[place] for place in chosen]
        for piece in pieces:
            del lane[piece]
        return pieces
