"""Processes that measure: what they print, how long they may take, and what ended them."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from longform_lab.speed.memory import ALLOCATOR

STARTING = 300.0  # seconds for imports, on a busy machine
OUT_OF_MEMORY = "out of memory (the system ended its process)"


class Ended(NamedTuple):
    """The lines that a process printed, and why it did not finish, or ""."""

    lines: list[str]
    why: str


def run_module(module: str, *given: str, log: Path, seconds: float = math.inf, frugal: bool = False) -> Ended:
    """Run ``python -m MODULE GIVEN`` for at most ``seconds``; ``log`` gets what it complains about.

    ``frugal``: it gives freed memory back at once, and is slower: for a measurement of memory.
    """
    command, environment = [sys.executable, "-m", module, *given], os.environ | (ALLOCATOR if frugal else {})
    log.parent.mkdir(parents=True, exist_ok=True)
    limit = None if seconds == math.inf else seconds + STARTING
    with log.open("a", encoding="utf-8") as complaints, TemporaryFile("w+", encoding="utf-8") as said:
        try:
            done = subprocess.run(command, env=environment, stdout=said, stderr=complaints, timeout=limit)
            why = end_of(done.returncode)
        except subprocess.TimeoutExpired:
            why = f"stopped after {seconds:,.0f} s"
        said.seek(0)
        return Ended(said.read().splitlines(), why)


def end_of(status: int) -> str:
    """Meaning of a process's exit status; "" for a good end."""
    if status == -signal.SIGKILL:
        return OUT_OF_MEMORY
    return f"its process ended with status {status}" if status else ""


def events_of(lines: list[str]) -> list[dict[str, Any]]:
    """The events among the lines of ``worker``, whose libraries may print others."""
    return [json.loads(line) for line in lines if line.startswith('{"event"')]
