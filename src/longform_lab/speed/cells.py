"""The measurement of one cell of the grid, in processes of its own, and its rows.

First one pass of each competitor, for its memory and to see whether it runs at all; then those that ran alternate in
one process.
"""

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from longform_lab.records import Record
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.measuring import fitting_repeats, paired_ratio, spread
from longform_lab.speed.memory import KEPT_FREE, available_bytes
from longform_lab.speed.precision import impossible
from longform_lab.speed.processes import events_of, run_module
from longform_lab.speed.shapes import Cell
from longform_text.facts import commit, hardware, now, versions
from longform_text.settings import check_least, check_positive

WORKER = "longform_lab.speed.worker"
COMPILING = 600.0  # seconds a competitor may take beside its passes, in compiled cells
MIB = 2**20
CARD = 16 * 2**30  # bytes of the paper's card
UNFUSED = "unfused"
REFERENCES = ("sdpa", UNFUSED, "ours-linear", "ours-window")
UNITS = {
    **dict.fromkeys(("seconds", "fastest", "slowest"), "s"),
    **dict.fromkeys(("peak_mib", "process_mib", "weights_mib"), "MiB"),
    "tokens_per_second": "tokens/s",
}
Event = Mapping[str, Any]  # findings of a process about a competitor


@dataclass(frozen=True)
class Effort:
    """How long a grid may take."""

    repeats: int = 5  # rounds of each competitor
    cell_seconds: float = 300.0  # of all passes of a competitor in a cell: fewer rounds are run, or none, to keep it
    memory: bool = True  # whether peak memory is measured, by a pass of each competitor in another process

    def __post_init__(self) -> None:
        check_least(self, repeats=1)
        check_positive(self, "cell_seconds")


@dataclass
class CellRun:
    """The measurement of one cell. ``log``: gets what the processes complain about."""

    cell: Cell
    competitors: Mapping[str, Competitor]
    effort: Effort
    log: Path
    missing: dict[str, str] = field(default_factory=dict)

    def rows(self, lacking: Sequence[str]) -> list[Record]:
        """Records of the competitors ``lacking``; references among the others are measured again beside them."""
        wanted = [name for name in self.competitors if name in lacking or name in REFERENCES]
        repeats = {name: self.effort.repeats for name in wanted if self._possible(name)}
        probes: Mapping[str, Event] = {}
        if self.effort.memory:
            probes = self._measured("memory", repeats)
            repeats = self._fitting(probes)
        timed = self._measured("time", repeats)
        date = now()  # the same for all rows of a run of a cell, which tells them from those of other runs
        return [self._row(name, timed, probes, date) for name in lacking]

    def _possible(self, name: str) -> bool:
        """Whether it can run, by what is known before anything ran; the reason is kept where it cannot."""
        reason = impossible(self.cell) or self.competitors[name].missing(self.cell)
        if reason:
            self.missing[name] = reason
        return not reason

    @property
    def _limit(self) -> float:
        return self.effort.cell_seconds + (COMPILING if self.cell.mode == "compiled" else 0.0)

    def _fitting(self, probes: Mapping[str, Event]) -> dict[str, int]:
        """Rounds of each that ran; one pass may be too long for any."""
        repeats = {}
        for name, probe in probes.items():
            count = fitting_repeats(probe["seconds"], self.effort.repeats, self._limit)
            if count:
                repeats[name] = count
            else:
                limit = f"--cell-seconds {self.effort.cell_seconds:,.0f}"
                self.missing[name] = f"a pass takes about {probe['seconds']:,.0f} s, too long for {limit}"
        return repeats

    def _measured(self, task: str, repeats: Mapping[str, int]) -> dict[str, Event]:
        """Findings by competitor; a process that dies takes only the competitor with it that it was at."""
        found: dict[str, Event] = {}
        left = dict(repeats)
        while left:
            last, events, why = self._run(task, left)
            together = by_name(events, "found")
            found |= with_ratios(together) if task == "time" else together
            missing = {name: event["reason"] for name, event in by_name(events, "missing").items()}
            if why or not (together or missing):
                missing.setdefault(last, why or "its process said nothing")
            self.missing |= missing
            left = {name: count for name, count in left.items() if name not in together and name not in missing}
        return found

    def _run(self, task: str, repeats: Mapping[str, int]) -> tuple[str, list[dict[str, Any]], str]:
        """One process: the competitor that it began last, its events, and why it did not finish, or ""."""
        free = available_bytes() if self.cell.device == "cpu" else None
        job = {
            "task": task,
            "cell": asdict(self.cell),
            "repeats": repeats,
            "limit": self.effort.cell_seconds,
            "memory_limit": None if free is None else int(free * (1 - KEPT_FREE)),
            "parent": os.getpid(),
        }
        seconds = 2 * self._limit * len(repeats)
        ended = run_module(WORKER, json.dumps(job), seconds=seconds, log=self.log, frugal=task == "memory")
        events = events_of(ended.lines)
        begun = [event["name"] for event in events if event["event"] == "begin"]
        return begun[-1] if begun else next(iter(repeats)), events, ended.why

    def _row(self, name: str, timed: Mapping[str, Event], probes: Mapping[str, Event], date: str) -> Record:
        """The record of a competitor; its metrics:

        ``missing``: why it has no time; ``cell_seconds``: how long it was allowed. ``seconds``: the median of
        ``repeats`` rounds; ``spread``: the distance of their quartiles over it. ``against_X``: how many times faster
        than X. ``error``: relative, of the output that was checked. ``peak_mib``: memory of a pass above the loaded
        model; ``process_mib``: the process's most. ``texts_in_16_gib``: the largest batch that this memory holds,
        computed from these; ``texts_against_unfused``: over that of unfused attention. ``window``, ``window_slots``,
        ``sinks``: of a windowed model, whose k is not the setting "slots".
        """
        competitor, event, missing = self.competitors[name], timed.get(name), self.missing.get(name)
        metrics = {"missing": missing, "cell_seconds": self.effort.cell_seconds, **self._memory(name, probes)}
        metrics |= competitor.details(self.cell.shape) | (self._times(event) if event else {})
        packages = {} if missing else {package: version(package) for package in competitor.packages}
        return Record(
            name="speed",
            settings=self.cell.settings(name),
            metrics=metrics,
            versions=versions() | packages,
            units={metric: unit for metric, unit in UNITS.items() if metric in metrics},
            hardware=event["hardware"] if event else hardware(),
            commit=event["commit"] if event else commit(),
            date=date,
        )

    def _memory(self, name: str, probes: Mapping[str, Event]) -> dict[str, float | None]:
        probe = probes.get(name, {})
        texts, others = (self._texts_in_card(probes.get(each)) for each in (name, UNFUSED))
        sizes = {"peak_mib": "growth", "process_mib": "process", "weights_mib": "weights"}
        found = {name: None if (size := probe.get(key)) is None else size / MIB for name, key in sizes.items()}
        ratio = texts / others if texts and others else None
        return {**found, "texts_in_16_gib": texts, "texts_against_unfused": ratio}

    def _texts_in_card(self, probe: Event | None) -> float | None:
        """The largest batch that 16 GiB hold beside the weights, unrounded."""
        if probe is None or not probe["growth"]:
            return None
        return max(0, CARD - probe["weights"]) * self.cell.batch / probe["growth"]

    def _times(self, event: Event) -> dict[str, Any]:
        seconds = event["seconds"]
        median = statistics.median(seconds)
        return {
            "seconds": median,
            "fastest": min(seconds),
            "slowest": max(seconds),
            "spread": spread(seconds),
            "repeats": len(seconds),
            "tokens_per_second": self.cell.tokens / median,
            "error": event["error"],
            **{f"against_{name}": event.get(f"against_{name}") for name in REFERENCES},
        }


def by_name(events: Iterable[Event], kind: str) -> dict[str, Event]:
    """Events of a kind by competitor."""
    return {event["name"]: event for event in events if event["event"] == kind}


def with_ratios(together: Mapping[str, Event]) -> dict[str, Event]:
    """Findings of one process with how many times faster than each reference in it each competitor was.

    A ratio is the median over rounds, so that what slows a whole round slows both sides.
    """
    references = [name for name in REFERENCES if name in together]
    ratios = {
        name: {f"against_{each}": paired_ratio(together[each]["seconds"], event["seconds"]) for each in references}
        for name, event in together.items()
    }
    return {name: {**event, **ratios[name]} for name, event in together.items()}


def said(records: Iterable[Record]) -> list[str]:
    """Each row in one line."""
    lines = []
    for record in records:
        found, name = record.metrics, record.settings["competitor"]
        shown = [
            form.format(scale * value) for key, scale, form in SAID if isinstance(value := found.get(key), int | float)
        ]
        lines.append(f"{name}: {found['missing'] or ', '.join(shown)}")
    return lines


SAID = (
    ("seconds", 1_000, "{:,.1f} ms"),
    ("spread", 1, "spread {:.1%}"),
    ("against_sdpa", 1, "{:.2f} x as fast as SDPA"),
    ("tokens_per_second", 1, "{:,.0f} tokens/s"),
    ("peak_mib", 1, "{:,.0f} MiB"),
)
