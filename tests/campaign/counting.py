"""The count of what the campaign tried: one benchmark record a test.

A test asks for the fixture ``tally`` and adds to it: ``tally.inputs += 1``. CAMPAIGN_SCALE is "ci" (the default: a
small part, which ``make test`` runs) or "full" (``make campaign``). With CAMPAIGN_RECORDS, the path of a .jsonl file,
a record is appended to it when a test ends, and tests that it says have passed on this commit are not run again: a
campaign that was stopped goes on where it was.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from longform_lab.records import Record, read_records
from longform_text.facts import commit

Number = TypeVar("Number", int, float)
SCALE = os.environ.get("CAMPAIGN_SCALE", "ci")
FULL = {"ci": False, "full": True}[SCALE]


def scaled(quick: Number, full: Number) -> Number:
    """How much of something is tried: ``quick`` in ``make test``, ``full`` in ``make campaign``."""
    return full if FULL else quick


@dataclass
class Tally:
    """What one test tried: inputs that were given, kills (or other ends) that were survived, outputs compared."""

    inputs: int = 0
    kills: int = 0
    compared: int = 0


def result(test: str, part: str, tally: Tally, *, seconds: float, failed: bool) -> Record:
    """The record of one test of the file ``part``; a test that failed counts as something lost."""
    metrics = {**asdict(tally), "lost": int(failed), "seconds": seconds}
    return Record(
        name="campaign", metrics=metrics, settings={"part": part, "test": test, "scale": SCALE}, units={"seconds": "s"}
    )


def passed(path: str | Path) -> set[str]:
    """The tests of this scale that the file says have passed on this commit; none where code was changed since."""
    if not Path(path).exists() or commit().endswith("+"):
        return set()
    latest = {
        record.settings["test"]: record.metrics["lost"]
        for record in read_records([path])
        if record.commit == commit() and record.settings["scale"] == SCALE
    }
    return {test for test, lost in latest.items() if not lost}
