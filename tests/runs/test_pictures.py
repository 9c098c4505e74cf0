"""Logarithmic axes of pictures: round ticks in plain numbers, within one decade and over many."""

from pathlib import Path

import pytest

from longform_lab.pictures import finish, picture


@pytest.mark.parametrize(
    ("low", "high", "base", "shown"),
    [
        (33, 43, 10, ["34", "36", "38", "40", "42"]),
        (20, 250, 10, ["20", "50", "100", "200"]),
        (1, 100_000, 10, ["1", "10", "100", "1,000", "10,000", "100,000"]),
        (128, 2048, 2, ["128", "256", "512", "1,024", "2,048"]),
        (32, 64, 2, ["32", "64"]),
    ],
)
def test_ticks_are_round_and_plain(low: float, high: float, base: int, shown: list[str], tmp_path: Path) -> None:
    with picture(tmp_path / "a.png", 4.0, 3.0) as axes:
        axes.plot([1, 2], [low, high])
        finish(axes, "", "", "")
        axes.set_yscale("log", base=base)
    inside = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert inside == shown
    assert (tmp_path / "a.png").stat().st_size > 1000
