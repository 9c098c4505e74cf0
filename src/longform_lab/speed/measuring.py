"""Timing of passes that take turns in one process, and their median and spread."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

TURN = 0.1  # seconds; shorter passes are repeated within a turn
MOST_PASSES = 50  # of a turn
LONG = 10.0  # seconds; the first of longer passes counts: what loads once is nothing beside it
WARM_UPS = 2  # passes before the first that counts


def alternate(
    actions: Mapping[str, Callable[[], None]],
    repeats: Mapping[str, int],
    limit: float,
    begin: Callable[[str], None],
    failed: Callable[[str, Exception], None],
) -> dict[str, list[float]]:
    """Seconds of a pass of each action, a list with an entry a round.

    Each round gives every action one turn; an action with fewer ``repeats`` sits out the later rounds, and so does one
    whose turns would pass ``limit`` seconds; it gets one. A turn is one pass, or several where one takes less than
    0.1 s (their mean). Every action runs twice before, unless the first pass takes more than 10 s: that one is its
    first round. ``begin`` is given the name of an action before each turn, ``failed`` the name and the error of one
    that raised an error; it has no entry.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    passes: dict[str, int] = {}
    for turn in range(-1, max(repeats.values(), default=0)):
        for name in list(seconds):
            begin(name)
            try:
                if turn < 0:
                    seconds[name], passes[name] = _warm_up(actions[name])
                elif _takes_turn(seconds[name], turn, repeats[name], passes[name], limit):
                    seconds[name].append(_timed(actions[name], passes[name]))
            except Exception as error:
                del seconds[name]
                failed(name, error)
    return seconds


def _warm_up(action: Callable[[], None]) -> tuple[list[float], int]:
    """The seconds that already count, and how many passes fill a turn."""
    first = _timed(action, 1)
    if first > LONG:
        return [first], 1
    return [], max(1, min(MOST_PASSES, round(TURN / max(_timed(action, 1), 1e-9))))


def _takes_turn(rounds: Sequence[float], turn: int, repeats: int, passes: int, limit: float) -> bool:
    """Whether it is due, and another turn like the last ends before ``limit`` seconds are spent; the first may."""
    due = len(rounds) <= turn < repeats
    return due and (not rounds or passes * (sum(rounds) + rounds[-1]) <= limit)


def _timed(action: Callable[[], None], passes: int) -> float:
    began = time.perf_counter()
    for _ in range(passes):
        action()
    return (time.perf_counter() - began) / passes


def fitting_repeats(seconds: float, repeats: int, limit: float) -> int:
    """At most ``repeats`` rounds that end within ``limit`` seconds, warm-up included; 0 where not even one does."""
    if seconds > LONG:  # its first pass counts
        return min(repeats, int(limit / seconds))
    if 2 * seconds > limit:
        return 0
    return max(1, min(repeats, int(limit / max(seconds, 1e-9)) - WARM_UPS))


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
