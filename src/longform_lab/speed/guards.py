"""Limits of long cells: what a pass will take is predicted from shorter texts, and decides how often it is repeated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter

from longform_lab.records import Record
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.measuring import LONG
from longform_lab.speed.memory import KEPT_FREE
from longform_lab.speed.shapes import Cell

WARM_UPS = 2  # passes before the first that counts
VARIED = ("length", "slots", "batch")  # k and the batch go with the length
GROUP_SHARE = 0.7  # of available memory, for the models that alternate in one process


@dataclass(frozen=True)
class Probe:
    """Cost of one pass of a competitor: seconds, peak bytes above the loaded model, bytes of its weights."""

    seconds: float
    growth: int | None
    weights: int
    process: int

    def resident(self, work: str) -> int:
        """Bytes that the model holds between passes; in training AdamW's two moments too."""
        return self.weights * (3 if work == "train" else 1)

    def texts_within(self, total: int, batch: int) -> float | None:
        """The largest batch that ``total`` bytes hold beside the weights, unrounded; the probe had ``batch`` texts."""
        return None if not self.growth else max(0, total - self.weights) * batch / self.growth


def predicted_seconds(competitor: Competitor, cell: Cell, records: Iterable[Record]) -> float | None:
    """Seconds of a pass, from the nearest shorter length in ``records`` with the same settings; None without one.

    Time is taken to grow as the operations do, or as n² where these are not known and the competitor is quadratic.
    """
    wanted = {name: value for name, value in cell.settings(competitor.name).items() if name not in VARIED}
    shorter = [
        (record.settings["length"], seconds * cell.batch / record.settings["batch"])
        for record in records
        if isinstance(seconds := record.metrics.get("seconds"), float)
        and wanted.items() <= record.settings.items()
        and record.settings["length"] < cell.length
    ]
    if not shorter:
        return None
    length, seconds = max(shorter, key=itemgetter(0))
    return seconds * _growth(competitor, replace(cell, length=length), cell)


def _growth(competitor: Competitor, short: Cell, long: Cell) -> float:
    if competitor.floor is None:
        return (long.length / short.length) ** (2 if competitor.quadratic else 1)
    before, after = (competitor.plan(cell).operations(cell.work) for cell in (short, long))
    return after / before


def fitting_repeats(seconds: float, repeats: int, limit: float) -> int:
    """At most ``repeats`` rounds that end within ``limit`` seconds, warm-up included; 0 where not even one does."""
    if seconds > LONG:  # its first pass counts
        return min(repeats, int(limit / seconds))
    if 2 * seconds > limit:
        return 0
    return max(1, min(repeats, int(limit / max(seconds, 1e-9)) - WARM_UPS))


def memory_groups(
    probes: Mapping[str, Probe], references: Iterable[str], work: str, free: int | None
) -> list[list[str]]:
    """Competitors that can be held in memory together, each group with the ``references`` that are measured at all.

    A group's models take at most GROUP_SHARE of what is ``free`` (bytes), and with the largest pass of its own members
    at most what a child may take.
    """
    shared = [name for name in references if name in probes]
    others = [name for name in probes if name not in shared]
    if free is None or not others:
        return [shared + others]

    def fit(names: list[str]) -> bool:
        resident = sum(probes[name].resident(work) for name in names)
        peak = max(probes[name].growth or 0 for name in names)
        return resident <= GROUP_SHARE * free and resident + peak <= (1 - KEPT_FREE) * free

    groups: list[list[str]] = [[]]
    for name in others:
        if groups[-1] and not fit([*shared, *groups[-1], name]):
            groups.append([])
        groups[-1].append(name)
    return [shared + group for group in groups]
