"""The campaign's table: what the tests of each file tried, summed; a record is a test's."""

from collections.abc import Mapping, Sequence
from typing import Any

SUMMED = ("inputs", "kills", "compared", "lost", "seconds")


def campaign(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns, and a row for each file of tests."""
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        parts.setdefault(record["settings"]["part"], []).append(record["metrics"])
    heads = [
        "tests of",
        "tests",
        "inputs",
        "kills and other ends survived",
        "outputs compared",
        "lost or wrong",
        "seconds",
    ]
    rows = [
        [part, f"{len(tests):,}", *(f"{sum(test[name] for test in tests):,.0f}" for name in SUMMED)]
        for part, tests in parts.items()
    ]
    return heads, rows
