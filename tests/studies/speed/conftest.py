from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from longform_lab.speed import cell_run
from longform_lab.speed.children import Outcome
from longform_lab.speed.shapes import Cell

COMMIT = "of the child"
HARDWARE = {"cpu": "a CPU", "cpu_features": [], "cores": 2, "threads": 1, "memory_gib": 8.0, "gpu": None}


@dataclass
class FakeChildren:
    """Stands for child processes: a pass takes n microseconds and n KiB, half of that for "sdpa"; its floor n / 4.

    ``dies``: competitors whose process ends with them, by task, and ``end``: how.

    ``calls``: task, length and competitors of each; ``turns``: seconds for the turns of a competitor.
    """

    dies: dict[str, str] = field(default_factory=dict)
    end: str = "out of memory (the system ended its process)"
    slow: dict[str, float] = field(default_factory=dict)
    calls: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    floored: list[list[str]] = field(default_factory=list)
    turns: set[float] = field(default_factory=set)

    def __call__(
        self, task: str, cell: Cell, repeats: dict[str, int], *, seconds: float, log: Path,
        tell: Callable[[str], None], floored: Sequence[str] = (), turns: float = 0.0,
    ) -> Outcome:  # fmt: skip
        if task == "time":
            self.turns.add(turns)
        self.calls.append((task, cell.length, tuple(repeats)))
        self.floored.append(list(floored))
        outcome = Outcome()
        for name, count in repeats.items():
            outcome.begun = name
            if self.dies.get(name) == task:
                outcome.ended = self.end
                return outcome if task == "memory" else Outcome(begun=name, ended=outcome.ended)
            outcome.found[name] = self.event(task, cell, name, count)
            if task == "time" and name not in floored:
                outcome.found[name]["floor"] = []
        return outcome

    def event(self, task: str, cell: Cell, name: str, count: int) -> dict[str, Any]:
        one = self.slow.get(name, cell.length * 1e-6 * (2 if name == "sdpa" else 1))
        if task == "memory":
            return {"seconds": one, "growth": cell.length * 1_024, "weights": 2**20, "process": 2**30}
        floor = [cell.length * 0.25e-6] * count
        return {"seconds": [one] * count, "floor": floor, "error": 1e-6, "hardware": HARDWARE, "commit": COMMIT}


@pytest.fixture
def fake_children(monkeypatch: pytest.MonkeyPatch) -> FakeChildren:
    fake = FakeChildren()
    monkeypatch.setattr(cell_run, "run_child", fake)
    return fake
