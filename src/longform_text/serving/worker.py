"""Threads that run the model: batch after batch, whatever becomes of one."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from longform_text.inference.kept_memory import give_back
from longform_text.serving.engine import Engine
from longform_text.serving.errors import Refusal
from longform_text.serving.metrics import Metrics
from longform_text.serving.waiting import Piece, Waiting

log = logging.getLogger("longform_text.serving")
BETWEEN = 1.0  # seconds after which free memory goes back to the system; else thousands of batches doubled it
FAILED = "the model failed on this input"


class Worker(threading.Thread):
    """One thread; it ends when ``waiting`` is closed. Results go to the event loop's thread."""

    def __init__(self, engine: Engine, waiting: Waiting, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="longform-model", daemon=True)
        self.engine, self.waiting, self.metrics, self.loop = engine, waiting, metrics, loop

    def run(self) -> None:
        """Run batches until there are no more to come."""
        given_back = time.monotonic()
        while (pieces := self.waiting.take()) is not None:
            self._deliver(pieces, self.results(pieces))
            if time.monotonic() > given_back + BETWEEN:
                give_back()
                given_back = time.monotonic()

    def results(self, pieces: Sequence[Piece]) -> list[Any]:
        """The result of each piece, or the Refusal in its place.

        A batch that fails is run again in halves, so that one text, or a lack of memory, takes no other's result away.
        """
        started = time.monotonic()
        try:
            with torch.inference_mode():
                rows = self.engine.run([piece.tokens for piece in pieces])
                found = [_finite(piece.finish(row)) for piece, row in zip(pieces, rows, strict=True)]
        except Exception as error:
            log.error("a batch of %d texts failed: %s", len(pieces), where(error))
        else:
            self.metrics.batch(pieces, started, time.monotonic())
            return found
        if len(pieces) == 1:
            return [Refusal("failed", FAILED)]
        half = len(pieces) // 2
        return self.results(pieces[:half]) + self.results(pieces[half:])

    def _deliver(self, pieces: Sequence[Piece], results: Sequence[Any]) -> None:
        def settle() -> None:
            for piece, result in zip(pieces, results, strict=True):
                piece.work.settle(piece.place, result)

        try:
            self.loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed: nobody waits any more
            log.warning("the results of %d texts came after the end", len(pieces))


def where(error: BaseException) -> str:
    """An error's kind and place; not its message, which may quote a text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"


def _finite(result: Any) -> Any:
    """The result; raises ArithmeticError where a number of it is none."""
    arrays = [result] if isinstance(result, np.ndarray) else [vector for _, vector in result]
    if not all(np.isfinite(array).all() for array in arrays):
        raise ArithmeticError("NaN or infinite")
    return result
