"""Child processes that measure: what they report, how long they may take, and what killed them."""

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from longform_lab.speed.memory import ALLOCATOR, KEPT_FREE, available_bytes
from longform_lab.speed.shapes import Cell

WORKER = (sys.executable, "-m", "longform_lab.speed.worker")
STARTING = 300.0  # seconds for a process to say its first word: imports, on a busy machine
LEAVING = 60.0  # and to end after its last


@dataclass
class Outcome:
    """Reports of a child, by competitor, before it ended.

    ``begun``: the one that ran last, or whose floor did. ``ended``: why it did not finish, or "".
    """

    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    begun: str = ""
    ended: str = ""

    def take(self, event: dict[str, Any]) -> None:
        """Note one event of ``worker``."""
        kind, name = event["event"], event.get("name", "")
        if kind in ("begin", "round"):
            self.begun = name
        elif kind == "missing":
            self.missing[name] = event["reason"]
        else:
            self.found[name] = event


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
    command = [*WORKER, json.dumps(job_for(task, cell, repeats, floored, turns, memory_limit))]
    outcome = Outcome()
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", encoding="utf-8") as errors,
        subprocess.Popen(command, env=environment(task), stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        assert child.stdout is not None
        try:
            _listen(child.stdout, outcome, seconds, per_competitor=task == "memory", tell=tell)
            if not outcome.ended:
                outcome.ended = end_of(child.wait(timeout=LEAVING))
        finally:
            child.kill()
    return outcome


def job_for(
    task: str, cell: Cell, repeats: dict[str, int], floored: Sequence[str], limit: float, memory_limit: int | None
) -> dict[str, Any]:
    """Job as the child's ``main`` takes it."""
    return {
        "task": task,
        "cell": asdict(cell),
        "repeats": repeats,
        "floored": list(floored),
        "limit": limit,
        "memory_limit": memory_limit,
        "parent": os.getpid(),
    }


def environment(task: str) -> dict[str, str]:
    """Variables of a process for "memory" or "time": for "memory" it gives freed memory back at once, and is slower."""
    return os.environ | (ALLOCATOR if task == "memory" else {})


def end_of(status: int, complaints: str = "") -> str:
    """Meaning of a process's exit status, with the last line that it wrote to standard error; "" for a good end."""
    if status == -signal.SIGKILL:
        return "out of memory (the system ended its process)"
    last = complaints.strip().splitlines()[-1:]
    return ": ".join([f"its process ended with status {status}", *last]) if status else ""


def said_apart(task: str, module: str, *given: str, limit: float | None = None) -> dict[str, Any]:
    """The JSON object that ``python -m MODULE GIVEN`` prints last, or {"missing": why there is none}.

    ``task``: "memory" or "time". ``limit``: seconds that it may take.
    """
    command = [sys.executable, "-m", module, *given]
    try:
        done = subprocess.run(command, env=environment(task), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"missing": f"stopped after {limit:,.0f} s"}
    if done.returncode:
        return {"missing": end_of(done.returncode, done.stderr)}
    return json.loads(done.stdout.splitlines()[-1])


def _listen(
    stream: IO[str], outcome: Outcome, seconds: float, *, per_competitor: bool, tell: Callable[[str], None]
) -> None:
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    until = time.monotonic() + STARTING + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            break
        if line is None:
            return
        if line.startswith('{"event"'):
            event = json.loads(line)
            outcome.take(event)
            tell(event.get("name") or event["event"])
            if per_competitor and event["event"] in ("begin", "round"):
                until = time.monotonic() + seconds
    outcome.ended = f"stopped after {seconds:,.0f} s"
