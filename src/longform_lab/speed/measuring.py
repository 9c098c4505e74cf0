"""Timing of runs that alternate between competitors in one process, and their median and spread."""

import math
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

TURN = 0.1  # seconds; shorter passes are repeated within a turn
MOST_PASSES = 50  # of a turn
LONG = 10.0  # seconds; the first of longer passes counts: what loads once is nothing beside it


def alternate(
    actions: Mapping[str, Callable[[], None]],
    repeats: Mapping[str, int],
    progress: Callable[[str], None],
    *,
    limit: float = math.inf,
    failed: Callable[[str, Exception], None] | None = None,
) -> dict[str, list[float]]:
    """Seconds of a pass of each action, a list with an entry a round.

    Each round gives every action one turn, in an order that moves by one from round to round; an action with fewer
    ``repeats`` sits out the later rounds, and so does one whose turns would pass ``limit`` seconds; it gets one. A turn
    is one pass, or several where one takes less than 0.1 s (their mean). Every action runs twice before (once, if it
    has a single repeat), unless the first pass takes more than 10 s: that one is its first round.

    ``progress`` is given the name of an action that is about to run, in the first runs as in its turns.
    ``failed`` is given the name and the error of an action that raised one; it takes no further part and has no entry.
    Without it the error is raised.
    """
    seconds: dict[str, list[float]] = {}
    passes = {}

    @contextmanager
    def watched(name: str) -> Generator[None]:
        try:
            yield
        except Exception as error:
            if failed is None:
                raise
            seconds.pop(name, None)
            failed(name, error)

    for name in list(actions):
        progress(name)
        with watched(name):
            seconds[name], passes[name] = _warm_up(actions[name], 1 if repeats[name] == 1 else 2)
    names = list(seconds)
    for turn in range(max(repeats.values(), default=0)):
        shift = turn % max(1, len(names))
        for name in names[shift:] + names[:shift]:
            if name in seconds and _takes_turn(seconds[name], turn, repeats[name], passes[name], limit):
                progress(name)
                with watched(name):
                    seconds[name].append(_timed(actions[name], passes[name]))
    return seconds


def _warm_up(action: Callable[[], None], times: int) -> tuple[list[float], int]:
    """Run it; the seconds that already count, and how many passes fill a turn."""
    last = _timed(action, 1)
    if last > LONG:
        return [last], 1
    if times > 1:
        last = _timed(action, 1)
    return [], max(1, min(MOST_PASSES, round(TURN / max(last, 1e-9))))


def _takes_turn(rounds: Sequence[float], turn: int, repeats: int, passes: int, limit: float) -> bool:
    """Whether it is due, and another turn like the last ends before ``limit`` seconds are spent; the first may."""
    due = len(rounds) <= turn < repeats
    return due and (not rounds or passes * (sum(rounds) + rounds[-1]) <= limit)


def _timed(action: Callable[[], None], passes: int) -> float:
    began = time.perf_counter()
    for _ in range(passes):
        action()
    return (time.perf_counter() - began) / passes


def spread(seconds: Sequence[float]) -> float | None:
    """Distance between the quartiles over the median; None for fewer than 3 values, which have none."""
    if len(seconds) < 3:
        return None
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return (high - low) / middle


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float | None:
    """Median over rounds of one time over another; None where one of them has no round."""
    ratios = [above / below for above, below in zip(numerator, denominator, strict=False)]
    return statistics.median(ratios) if ratios else None
