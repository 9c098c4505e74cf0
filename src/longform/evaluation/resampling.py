"""Intervals of means, and of differences between two, by the bootstrap: items are drawn anew with replacement."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

DRAWS = 10_000
AT_A_TIME = 1_000_000  # drawn items in memory
OUTSIDE = (2.5, 97.5)  # percentiles: 95 % lie between


class Interval(NamedTuple):
    """A mean, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def signed(self) -> str:
        """As a difference is written: "+1.2 (-0.3 to +2.6)"."""
        return f"{self.mean:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


def bootstrap(values: np.ndarray, *, seed: int = 0) -> Interval:
    """The mean of ``values`` (N,) and its 95 % interval, by 10,000 draws of N items (percentiles).

    Of the differences between two contenders item by item this is the paired bootstrap: what makes an item hard for
    both does not widen it.
    """
    generator = np.random.default_rng(seed)
    together = min(DRAWS, max(1, AT_A_TIME // len(values)))
    means = [
        values[generator.integers(len(values), size=(min(together, DRAWS - first), len(values)))].mean(axis=1)
        for first in range(0, DRAWS, together)
    ]
    low, high = np.percentile(np.concatenate(means), OUTSIDE)
    return Interval(float(values.mean()), float(low), float(high))


def difference_of(one: Sequence[float], other: Sequence[float]) -> Interval:
    """How much better ``one`` is than ``other``, item by item: the paired bootstrap."""
    return bootstrap(np.array(one) - np.array(other))
