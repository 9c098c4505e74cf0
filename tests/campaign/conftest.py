"""The inputs of the campaign's commands, and its count: from the processes that run tests to the one that writes it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from campaign.commands import make_inputs
from campaign.counting import Tally, passed, result

from longform_lab.records import append_record

PROPERTY = "campaign"
RECORDS = os.environ.get("CAMPAIGN_RECORDS", "")
DONE = "CAMPAIGN_DONE"  # the tests that have passed, for the processes of pytest-xdist: all must collect the same
failed: set[str] = set()
seconds: dict[str, float] = {}


@pytest.fixture(scope="session")
def given(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models and texts that commands read; and the paths that the processes of the campaign import from."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    return make_inputs(tmp_path_factory.mktemp("given"), tiny_tokenizer)


def pytest_configure(config: pytest.Config) -> None:
    if RECORDS and not hasattr(config, "workerinput"):  # of pytest-xdist: its workers send their reports
        os.environ[DONE] = json.dumps(sorted(passed(RECORDS)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = json.loads(os.environ.get(DONE, "[]"))
    old = [item for item in items if item.nodeid in done]
    config.hook.pytest_deselected(items=old)
    items[:] = [item for item in items if item not in old]


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """What this test tried."""
    found = Tally()
    yield found
    request.node.user_properties.append((PROPERTY, vars(found)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        failed.add(report.nodeid)
    if not RECORDS or "PYTEST_XDIST_WORKER" in os.environ or report.when in ("setup", "call"):
        return
    counts = dict(report.user_properties).get(PROPERTY, {})  # none of a test that took its process with it
    part = Path(report.nodeid.split("::")[0]).stem.removeprefix("test_").replace("_", " ")
    tally = Tally(**counts)
    append_record(
        RECORDS,
        result(report.nodeid, part, tally, seconds=seconds[report.nodeid], failed=report.nodeid in failed),
    )
