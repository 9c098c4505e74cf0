import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from longform_lab.speed import cells
from longform_lab.speed.processes import Ended

COMMIT = "of the child"
HARDWARE = {"cpu": "a CPU", "cpu_features": [], "cores": 2, "threads": 1, "memory_gib": 8.0, "gpu": None}


@dataclass
class FakeProcesses:
    """Stands for processes that measure: a pass takes n microseconds and n KiB, twice the time for "sdpa".

    ``dies``: competitors whose process ends with them, by task, and ``end``: how. ``slow``: seconds of a pass.
    ``calls``: task, length and competitors of each; ``turns``: seconds for the turns of a competitor.
    """

    dies: dict[str, str] = field(default_factory=dict)
    end: str = "out of memory (the system ended its process)"
    slow: dict[str, float] = field(default_factory=dict)
    calls: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    turns: set[float] = field(default_factory=set)

    def __call__(self, module: str, given: str, *, seconds: float, log: Path, frugal: bool) -> Ended:
        job = json.loads(given)
        task, length = job["task"], job["cell"]["length"]
        assert frugal == (task == "memory")
        self.calls.append((task, length, tuple(job["repeats"])))
        self.turns |= {job["limit"]} if task == "time" else set()
        events: list[dict[str, Any]] = []
        for name, count in job["repeats"].items():
            events.append({"event": "begin", "name": name})
            if self.dies.get(name) == task:
                return Ended(list(map(json.dumps, events if task == "memory" else events[-1:])), self.end)
            events.append({"event": "found", "name": name, **self.found(task, length, name, count)})
        return Ended(["a library's line", *map(json.dumps, events)], "")

    def found(self, task: str, length: int, name: str, count: int) -> dict[str, Any]:
        one = self.slow.get(name, length * 1e-6 * (2 if name == "sdpa" else 1))
        if task == "memory":
            return {"seconds": one, "growth": length * 1_024, "weights": 2**20, "process": 2**30}
        return {"seconds": [one] * count, "error": 1e-6, "hardware": HARDWARE, "commit": COMMIT}


@pytest.fixture
def fake_processes(monkeypatch: pytest.MonkeyPatch) -> FakeProcesses:
    fake = FakeProcesses()
    monkeypatch.setattr(cells, "run_module", fake)
    return fake
