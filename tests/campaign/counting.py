"""The count of what the campaign tried: summed over each test file, one benchmark record a file.

A test asks for the fixture ``tally`` and adds to it: ``tally.inputs += 1``. CAMPAIGN_SCALE is "ci" (the default: a small
part, in ``make test``) or "full" (``make campaign``); with CAMPAIGN_RECORDS, the path of a .jsonl file, a record of each
file of tests is appended to it.
"""

import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from longform.runs.records import Record, append_records

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


class Totals:
    """Tallies of the tests of each file; a test that failed counts as something lost."""

    def __init__(self) -> None:
        self.parts: dict[str, Counter[str]] = {}

    def add(self, part: str, tally: Tally, *, seconds: float, failed: bool) -> None:
        """Add one test's."""
        counted = self.parts.setdefault(part, Counter())
        counted.update(asdict(tally), tests=1, seconds=seconds, lost=int(failed))

    def append_to(self, path: str | Path) -> None:
        """Append a record of each part."""
        units = {"seconds": "s"}
        rows = [
            Record(name="campaign", metrics=dict(counted), settings={"part": part, "scale": SCALE}, units=units)
            for part, counted in sorted(self.parts.items())
        ]
        append_records(path, rows)
