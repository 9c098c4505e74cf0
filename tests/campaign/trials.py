"""Trials of a command: an unbroken run, and runs that were ended somewhere and are started again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.commands import command_line
from campaign.contents import TRAINED, contents, differences
from campaign.processes import Bounds, Ended, Running, members

PATIENCE = 30.0  # seconds that helpers of a killed command may take to notice it


@dataclass(frozen=True)
class Unbroken:
    """What a command writes that nothing disturbs, its bytes, its seconds, and what it changes, one after another."""

    written: dict[str, Any]
    bytes: int
    seconds: float
    changes: list[str]


_unbroken: dict[tuple[str, ...], Unbroken] = {}


@dataclass
class Trials:
    """Runs of one command below ``folder``, each in a new place; ``given``: its inputs."""

    name: str
    given: Path
    folder: Path
    options: Sequence[str] = ()
    groups: list[int] = field(default_factory=list)

    def place(self) -> Path:
        """A new folder to write in."""
        made = self.folder / f"place-{sum(1 for one in self.folder.glob('place-*') if one.is_dir())}"
        made.mkdir()
        return made

    def start(self, place: Path, **bounds: Any) -> Running:
        """The command, started; ``bounds``: those of ``Bounds``."""
        line = [*command_line(self.name, self.given, place), *self.options]
        running = Running(line, self.folder / f"{place.name}-{len(self.groups)}.log", Bounds(place, **bounds))
        self.groups.append(running.process.pid)
        return running

    def unbroken(self) -> Unbroken:
        """The run that others are compared with; one in a process is enough."""
        key = (self.name, *self.options)
        if key not in _unbroken:
            _unbroken[key] = self._run_unbroken()
        return _unbroken[key]

    def _run_unbroken(self) -> Unbroken:
        place, seen = self.place(), self.folder / "changes"
        ended = self.start(place, seen=seen).end()
        assert ended.status == 0, ended.said
        size = sum(path.stat().st_size for path in place.rglob("*"))
        return Unbroken(self.written(place), size, ended.seconds, seen.read_text().splitlines())

    def written(self, place: Path) -> dict[str, Any]:
        """What is below ``place`` and is compared."""
        return contents(place, measurements=self.name == "benchmark")

    def finish(self, place: Path, whole: Unbroken, after: str, *, rounded: bool = False) -> list[str]:
        """Start the command again and wait: what is wrong with what it says and has written, a line each.

        ``rounded``: numbers may differ from those of the unbroken run by rounding.
        """
        ended = self.start(place).end()
        if not self.done(ended):
            return [f"{after}, then ended with {ended.status}: {ended.said[-3000:]}"]
        return [f"{after}: {line}" for line in self.lost(place, whole, rounded=rounded)]

    def lost(self, place: Path, whole: Unbroken, *, rounded: bool = False) -> list[str]:
        """What is not as the unbroken run has it, a line each, once a broken one was finished."""
        resumed = self.name in TRAINED
        return differences(whole.written, self.written(place), rounded=rounded, resumed=resumed)

    def done(self, ended: Ended) -> bool:
        """Whether a second start found or made the whole output, which is not made again unasked."""
        finished = "is not empty" if self.name == "convert" else "is finished already"
        return ended.status == 0 or (ended.status == 2 and finished in ended.error)

    def orphans(self) -> list[int]:
        """Processes of commands that have ended, which have not."""
        until = time.monotonic() + PATIENCE
        while (left := [pid for group in self.groups for pid in members(group)]) and time.monotonic() < until:
            time.sleep(0.1)
        return left


def complaint(ended: Ended, *, crashes: Sequence[int] = ()) -> str:
    """What is wrong with how a command failed: nothing if it says why in one line, without a traceback, or has one of
    the statuses ``crashes``.
    """
    if ended.status in crashes:
        return ""
    if "Traceback" in ended.said:
        return f"a traceback: {ended.said[-3000:]}"
    if ended.status != 2 or "longform: error: " not in ended.error:  # perhaps behind a progress bar
        return f"status {ended.status}, said: {ended.said[-3000:]}"
    return ""
