"""Child processes that measure, watched: what they report, how long they may take, and what killed them."""

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from longform.studies.speed.memory import ALLOCATOR, KEPT_FREE, available_bytes
from longform.studies.speed.shapes import Cell
from longform.studies.speed.worker import job_for

WORKER = (sys.executable, "-m", "longform.studies.speed.worker")
TICK = 1.0  # seconds between looks at the clock
STARTING = 300.0  # seconds for a process to say its first word: imports, on a busy machine
LEAVING = 60.0  # and to end after its last


@dataclass
class Outcome:
    """What a child reported, by competitor, before it ended.

    ``begun``: the one that ran last, or whose floor did. ``ended``: why it did not finish, or "".
    """

    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    begun: str = ""
    ended: str = ""


def run_child(
    task: str,
    cell: Cell,
    repeats: dict[str, int],
    *,
    floored: Sequence[str] = (),
    seconds: float,
    turns: float = math.inf,
    log: Path,
    tell: Callable[[str], None],
) -> Outcome:
    """Measure in a child; ``seconds``: for each competitor in "memory", for all together in "time".

    ``floored``: competitors whose floors are timed beside them. ``turns``: seconds for the turns of each in "time".

    ``log`` gets what the child writes to standard error. ``tell`` is told what it is doing.
    """
    free = available_bytes()
    memory_limit = None if free is None or cell.device != "cpu" else int(free * (1 - KEPT_FREE))
    environment = os.environ | (ALLOCATOR if task == "memory" else {})
    command = [*WORKER, json.dumps(job_for(task, cell, repeats, floored, turns, memory_limit))]
    outcome = Outcome()
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", encoding="utf-8") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        assert child.stdout is not None
        try:
            _listen(child.stdout, outcome, seconds, per_competitor=task == "memory", tell=tell)
            if not outcome.ended:
                outcome.ended = end_of(child.wait(timeout=LEAVING))
        finally:
            child.kill()
    return outcome


def end_of(status: int) -> str:
    """What a process's exit status says; "" for a good end."""
    if status == -signal.SIGKILL:
        return "out of memory (the system ended its process)"
    return f"its process ended with status {status}" if status else ""


def _listen(
    stream: IO[str], outcome: Outcome, seconds: float, *, per_competitor: bool, tell: Callable[[str], None]
) -> None:
    until = time.monotonic() + STARTING + seconds
    for line in _lines(stream):
        if line and line.startswith('{"event"'):
            event = json.loads(line)
            name = event.get("name", "")
            if event["event"] in ("begin", "round"):
                outcome.begun = name
                if per_competitor:
                    until = time.monotonic() + seconds
            elif event["event"] == "missing":
                outcome.missing[name] = event["reason"]
            elif event["event"] in ("memory", "time"):
                outcome.found[name] = event
            elif event["event"] == "shares":
                outcome.found[name]["shares"] = event["shares"]
            tell(name or event["event"])
        if time.monotonic() > until:
            outcome.ended = f"stopped after {seconds:,.0f} s"
            return


def _lines(stream: IO[str]) -> Iterator[str]:
    """Lines as they come, and "" whenever a second passes without one."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=TICK)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line
