import json
import sys
from pathlib import Path

import pytest

from longform_lab.speed import children
from longform_lab.speed.children import Outcome, run_child
from longform_lab.speed.shapes import Cell

CELL = Cell(
    size="tiny", length=64, batch=1, slots=16, dtype="float32", mode="eager", work="train", device="cpu", threads=1
)
BEGIN = 'say = lambda **event: print(json.dumps(event), flush=True); say(event="begin", name="a"); '


def outcome_of(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 60) -> Outcome:
    source = f"import json, os, signal, sys, time; {BEGIN}{program}"
    monkeypatch.setattr(children, "WORKER", (sys.executable, "-S", "-c", source))
    return run_child("memory", CELL, {"a": 1}, seconds=seconds, log=folder / "log", tell=lambda _: None)


def test_what_a_child_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        'print("noise"); say(event="memory", name="a", job=json.loads(sys.argv[1])); '
        'say(event="missing", name="b", reason="why"); print("complaint", file=sys.stderr)'
    )
    outcome = outcome_of(program, tmp_path, monkeypatch)
    assert outcome.found["a"]["job"]["cell"] == json.loads(json.dumps(CELL.__dict__))
    assert outcome.missing == {"b": "why"}
    assert outcome.ended == ""
    assert (tmp_path / "log").read_text() == "complaint\n"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("sys.exit(3)", "its process ended with status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "out of memory (the system ended its process)"),
    ],
)
def test_what_ended_a_child(program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(program, tmp_path, monkeypatch)
    assert (outcome.begun, outcome.ended) == ("a", reason)


def test_the_one_that_ran_last_is_known_in_rounds_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that was built last: that may be another."""
    program = 'say(event="begin", name="b"); say(event="round", name="a"); os.kill(os.getpid(), signal.SIGKILL)'
    assert outcome_of(program, tmp_path, monkeypatch).begun == "a"


def test_a_child_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of("time.sleep(100)", tmp_path, monkeypatch, seconds=0.1)
    assert outcome.ended == "stopped after 0 s"
