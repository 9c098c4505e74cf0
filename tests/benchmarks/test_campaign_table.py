"""Of the campaign's records: a file's tests are summed, the newest of each counts, what has passed is not run again."""

from dataclasses import replace
from pathlib import Path

import pytest
from campaign import counting
from campaign.counting import Tally, passed, result

from longform_lab.records import append_record
from longform_lab.tables.write import render_table


def test_a_file_is_the_sum_of_the_newest_of_each_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SCALE", "full")
    records = [
        result("a::one", "kill", Tally(kills=20, compared=20), seconds=3.0, failed=True),
        result("a::one", "kill", Tally(kills=30, compared=31), seconds=4.0, failed=False),
        result("a::two", "kill", Tally(kills=5, compared=6), seconds=5.0, failed=False),
        result("b::one", "fuzz", Tally(inputs=10_000), seconds=6.0, failed=True),
    ]
    rows = [line for line in render_table("campaign", records).splitlines() if line.startswith("| ")]
    assert rows[1:] == ["| fuzz | 1 | 10,000 | 0 | 0 | 1 | 6 |", "| kill | 2 | 0 | 35 | 37 | 0 | 9 |"]


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
