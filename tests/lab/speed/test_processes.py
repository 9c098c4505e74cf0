"""Processes that measure: what they said, what ended them, and none that outlives its parent."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longform_lab.speed.processes import events_of, run_module

PROGRAM = """
import json, os, signal, sys, time
print("noise")
print(json.dumps({"event": "begin", "name": "a"}), flush=True)
"""


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("print('complaint', file=sys.stderr)", ""),
        ("sys.exit(3)", "its process ended with status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "out of memory (the system ended its process)"),
        ("time.sleep(100)", "stopped after 0 s"),
    ],
)
def test_what_a_process_said_and_what_ended_it(
    ending: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "measuring_here.py").write_text(PROGRAM + ending)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("longform_lab.speed.processes.STARTING", 2.0)
    ended = run_module("measuring_here", seconds=0.1, log=tmp_path / "logs" / "log")
    assert (events_of(ended.lines), ended.why) == ([{"event": "begin", "name": "a"}], why)
    assert ended.lines[0] == "noise"
    assert ("complaint" in (tmp_path / "logs" / "log").read_text()) == (why == "")


CHILD = """
import sys, time
from longform_lab.speed.worker import end_with_parent
end_with_parent(int(sys.argv[1]), seconds=0.05)
print("ready", flush=True)
time.sleep(300)
"""
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline().strip(), child.pid, flush=True)
time.sleep(300)
"""


def is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.nightly
def test_a_child_ends_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        said, number = parent.stdout.readline().split()
    assert said == "ready"
    assert is_alive(int(number))
    parent.kill()
    parent.wait()
    last = time.monotonic() + 60
    while is_alive(int(number)) and time.monotonic() < last:
        time.sleep(0.05)
    assert not is_alive(int(number))
