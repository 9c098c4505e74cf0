"""The campaign's count: what tests tried goes from the processes that ran them to the one that writes records."""

import os
from collections.abc import Iterator

import pytest
from campaign.counting import Tally, Totals

PROPERTY = "campaign"
totals = Totals()
failed: set[str] = set()
seconds: dict[str, float] = {}


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """What this test tried; it counts for the test's file."""
    found = Tally()
    yield found
    part = request.path.stem.removeprefix("test_").replace("_", " ")
    request.node.user_properties.append((PROPERTY, (part, vars(found))))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        failed.add(report.nodeid)
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == PROPERTY:
                part, counts = value
                totals.add(part, Tally(**counts), seconds=seconds[report.nodeid], failed=report.nodeid in failed)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("CAMPAIGN_RECORDS")
    if path and not hasattr(session.config, "workerinput"):  # of pytest-xdist: its workers send their reports
        totals.append_to(path)
