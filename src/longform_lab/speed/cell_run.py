"""The measurement of one cell of the grid, in child processes, and its rows.

First one pass of each competitor, for its memory and to see whether it runs at all; then those that ran alternate in
one process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longform.runs.facts import now
from longform.runs.settings import check_least, check_positive
from longform_lab.records import Record
from longform_lab.speed.children import Outcome, run_child
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.guards import Probe, fitting_repeats
from longform_lab.speed.precision import impossible
from longform_lab.speed.rows import REFERENCES, UNFUSED, make_row, with_ratios
from longform_lab.speed.shapes import Cell

COMPILING = 600.0  # seconds a competitor may take beside its passes, in compiled cells
SILENT = "its process said nothing"


@dataclass(frozen=True)
class Effort:
    """How long a grid may take."""

    repeats: int = 5  # rounds of each competitor
    cell_seconds: float = 300.0  # of all passes of a competitor in a cell: fewer rounds are run, or none, to keep it
    memory: bool = True  # whether peak memory is measured, by a pass of each competitor in another process
    floors: str = "all"  # whose floors are timed: "all", "none", or a family

    def __post_init__(self) -> None:
        check_least(self, repeats=1)
        check_positive(self, "cell_seconds")

    def has_floor(self, family: str) -> bool:
        """Whether floors of this family are timed."""
        return self.floors in ("all", family)


@dataclass
class CellRun:
    """The measurement of one cell. ``tell`` is told what is being done; ``log`` gets what children complain about."""

    cell: Cell
    competitors: Mapping[str, Competitor]
    effort: Effort
    log: Path
    tell: Callable[[str], None]
    missing: dict[str, str] = field(default_factory=dict)
    probes: dict[str, Probe] = field(default_factory=dict)
    timed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def rows(self, lacking: Sequence[str]) -> list[Record]:
        """Records of the competitors ``lacking``; references among the others are measured again beside them."""
        wanted = [name for name in self.competitors if name in lacking or name in REFERENCES]
        repeats = {name: self.effort.repeats for name in wanted if self._possible(name)}
        if self.effort.memory and repeats:
            self._probe(repeats)
            repeats = self._fitting()
        self._time(repeats, lacking)
        date, unfused = now(), self.probes.get(UNFUSED)
        return [
            make_row(
                self.cell,
                self.competitors[name],
                self.timed.get(name),
                self.probes.get(name),
                unfused,
                self.missing.get(name),
                self.effort.cell_seconds,
                date,
            )
            for name in lacking
        ]

    def _possible(self, name: str) -> bool:
        """Whether it can run, by what is known before anything ran; the reason is kept where it cannot."""
        reason = impossible(self.cell) or self.competitors[name].missing(self.cell)
        if reason:
            self.missing[name] = reason
        return not reason

    def _too_long(self, seconds: float) -> str:
        return f"a pass takes about {seconds:,.0f} s, too long for --cell-seconds {self.effort.cell_seconds:,.0f}"

    @property
    def _limit(self) -> float:
        return self.effort.cell_seconds + (COMPILING if self.cell.mode == "compiled" else 0.0)

    def _probe(self, repeats: dict[str, int]) -> None:
        """One pass of each; a process that dies takes only the competitor with it that it was at."""
        left = dict(repeats)
        while left:
            outcome = run_child("memory", self.cell, left, seconds=self._limit, log=self.log, tell=self.tell)
            for name, event in outcome.found.items():
                self.probes[name] = Probe(*(event[field] for field in ("seconds", "growth", "weights", "process")))
            self.missing |= outcome.missing
            if outcome.ended or not (outcome.found or outcome.missing):
                self.missing.setdefault(outcome.begun or next(iter(left)), outcome.ended or SILENT)
            left = {name: count for name, count in left.items() if not (name in self.probes or name in self.missing)}

    def _fitting(self) -> dict[str, int]:
        """Rounds of each that ran; one pass may be too long for any."""
        ran = {name: probe.seconds for name, probe in self.probes.items() if name not in self.missing}
        repeats = {name: fitting_repeats(one, self.effort.repeats, self._limit) for name, one in ran.items()}
        self.missing |= {name: self._too_long(ran[name]) for name, count in repeats.items() if not count}
        return {name: count for name, count in repeats.items() if count}

    def _time(self, repeats: dict[str, int], lacking: Sequence[str]) -> None:
        """A group in one process; where that ends badly, what ran last is left out and the rest tried again.

        Floors are timed for rows that are ``lacking`` alone.
        """
        while repeats:
            seconds = 2 * self._limit * (len(repeats) + 1)  # floors run too
            floored = [
                name for name in repeats if name in lacking and self.effort.has_floor(self.competitors[name].family)
            ]
            outcome = run_child(
                "time",
                self.cell,
                repeats,
                floored=floored,
                seconds=seconds,
                turns=self.effort.cell_seconds,
                log=self.log,
                tell=self.tell,
            )
            self._keep(outcome)
            left = self._left(repeats)
            if outcome.found or not (outcome.ended or outcome.missing):
                self.missing |= dict.fromkeys(left, outcome.ended or SILENT)
            elif outcome.ended:
                self.missing[outcome.begun or next(iter(repeats))] = outcome.ended
            repeats = {name: repeats[name] for name in self._left(repeats)}

    def _left(self, names: Iterable[str]) -> list[str]:
        """Names that are neither timed nor known to be missing."""
        return [name for name in names if name not in self.timed and name not in self.missing]

    def _keep(self, outcome: Outcome) -> None:
        self.missing |= {name: reason for name, reason in outcome.missing.items() if name in self.competitors}
        for name, event in outcome.found.items():
            self.timed.setdefault(name, with_ratios(event, outcome.found))
