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
