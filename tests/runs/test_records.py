"""Records on a disk that is full."""

import resource
from pathlib import Path

import pytest

from longform_lab.records import Record, append_record, read_records


def test_records_that_do_not_fit_leave_the_file_as_it_was(tmp_path: Path) -> None:
    path, record = tmp_path / "records.jsonl", Record(name="race", metrics={"score": 0.5})
    append_record(path, record)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    try:
        with pytest.raises(OSError, match=r"File too large.*records\.jsonl"):
            append_record(path, record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_record(path, record)
    assert read_records([path]) == [record, record]
