"""What has passed in the campaign is not run again; test_tables.py has its table."""

from dataclasses import replace
from pathlib import Path

import pytest
from campaign import counting
from campaign.counting import Tally, passed, result

from longform_lab.records import append_record


def test_what_has_passed_on_this_commit_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "commit", lambda: "abc")
    path = tmp_path / "campaign.jsonl"
    ended = [
        ("one", "abc", False),
        ("two", "abc", True),
        ("three", "old", False),
        ("four", "abc", True),
        ("four", "abc", False),
    ]
    for test, commit, failed in ended:
        record = result(test, "kill", Tally(), seconds=1.0, failed=failed)
        append_record(path, replace(record, commit=commit))
    assert passed(path) == {"one", "four"}
    monkeypatch.setattr(counting, "commit", lambda: "abc+")
    assert passed(path) == set()
