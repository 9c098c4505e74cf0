"""Files of lines that are appended to are read as far as they are whole."""

from pathlib import Path

import pytest

from longform.runs.files import whole_lines

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
