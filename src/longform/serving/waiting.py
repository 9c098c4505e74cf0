"""The pieces that wait for the model, in two lanes that take turns.

So a long document holds short texts up for its own pass at most, and short ones never keep a long one waiting for good.
"""

import threading
import time
from collections.abc import Iterable
from itertools import islice

from longform.data.batching import group_by_length
from longform.serving.work import Piece, Work

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
