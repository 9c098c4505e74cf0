"""Records of what was measured and where, and files of lines that were cut off."""

import resource
from pathlib import Path

import pytest
import torch

from longform.files import whole_lines
from longform_lab.records import Record, append_record, provenance, read_records
from longform_text.facts import CHECKOUT, environment, hardware, record_facts, versions


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


CPU = torch.device("cpu")


def test_a_cpu_run_names_no_gpu_and_says_its_dtype():
    found = environment(CPU, torch.float32)
    assert (found["device"], found["matrix products"]) == ("CPU", "float32")
    assert versions().items() <= found.items()
    assert hardware(CPU)["cpu"] in found["machine"]
    assert {"system", "code"} <= found.keys()


def test_a_record_takes_the_facts_of_a_device():
    facts = record_facts(CPU)
    assert (CHECKOUT / "pyproject.toml").is_file()  # else no record would have a commit
    record = Record(name="made-up", metrics={}, **facts)
    assert record.hardware["gpu"] is None
    assert provenance([vars(record)] * 2).count(facts["date"][:10]) == 1


WHOLE = [b'{"step": 1}\n', b"[2]\n"]


@pytest.mark.parametrize("rest", [b"", b"3", b'{"step"', b"\x00\x00\n4\n", b"\xff\n4\n", b"[" * 100_000 + b"\n"])
def test_lines_up_to_one_that_is_cut_off_or_damaged(tmp_path: Path, rest: bytes) -> None:
    (tmp_path / "a").write_bytes(b"".join(WHOLE) + rest)
    with (tmp_path / "a").open("a+b") as file:
        assert list(whole_lines(file)) == [(WHOLE[0], {"step": 1}), (WHOLE[1], [2])]


def test_values_as_they_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\nthree\n4\n5")
    with (tmp_path / "a").open("rb") as file:
        assert [value for _, value in whole_lines(file, int)] == [1, 2]
