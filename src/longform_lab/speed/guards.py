"""Limits of long cells: how often a pass is repeated, and what memory holds."""

from dataclasses import dataclass

from longform_lab.speed.measuring import LONG

WARM_UPS = 2  # passes before the first that counts


@dataclass(frozen=True)
class Probe:
    """Cost of one pass of a competitor: seconds, peak bytes above the loaded model, bytes of its weights."""

    seconds: float
    growth: int | None
    weights: int
    process: int

    def texts_within(self, total: int, batch: int) -> float | None:
        """The largest batch that ``total`` bytes hold beside the weights, unrounded; the probe had ``batch`` texts."""
        return None if not self.growth else max(0, total - self.weights) * batch / self.growth


def fitting_repeats(seconds: float, repeats: int, limit: float) -> int:
    """At most ``repeats`` rounds that end within ``limit`` seconds, warm-up included; 0 where not even one does."""
    if seconds > LONG:  # its first pass counts
        return min(repeats, int(limit / seconds))
    if 2 * seconds > limit:
        return 0
    return max(1, min(repeats, int(limit / max(seconds, 1e-9)) - WARM_UPS))
