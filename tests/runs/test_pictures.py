"""Logarithmic axes of pictures: round ticks within one decade and over many, and labels that do not overlap."""

import itertools
from pathlib import Path

import pytest

from longform_lab.pictures import finish, log_ticks, make_readable, new_figure, number_ticks, picture


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (33.0, 43.0, [34, 36, 38, 40, 42]),
        (3.95, 4.25, [3.95, 4.0, 4.05, 4.1, 4.15, 4.2, 4.25]),
        (3.5, 24, [4, 5, 6, 8, 10, 15, 20]),
        (20, 250, [20, 50, 100, 200]),
        (0.03, 300, [0.1, 1, 10, 100]),
        (1, 1000, [1, 10, 100, 1000]),
        (1e-12, 1e3, [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1, 100]),
    ],
)
def test_ticks_are_round_and_enough(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


def test_labels_within_one_decade_and_over_many() -> None:
    figure = new_figure(4.0, 3.0)
    near, far = figure.subplots(1, 2)
    near.plot([1, 2], [33, 43])
    far.plot([1, 2], [1e-9, 1e9])
    for axes in (near, far):
        finish(axes, "", "", "", yscale="log")
    make_readable(figure)
    assert [label.get_text() for label in near.get_yticklabels()] == ["34", "36", "38", "40", "42"]
    assert [label.get_text() for label in far.get_yticklabels()][:2] == ["$10^{-9}$", "$10^{-6}$"]


@pytest.mark.parametrize("turned", [{}, {"rotation": 30, "ha": "right"}])
def test_labels_that_would_overlap_are_left_out(turned: dict[str, object], tmp_path: Path) -> None:
    lengths = [128, 130, 132, 256, 512, 1024, 2048, 4096, 4100, 8192, 16_384, 32_768, 65_536]
    with picture(tmp_path / "a.png", 4.0, 3.0) as axes:
        axes.plot(lengths, lengths)
        finish(axes, "", "", "", xscale="log", yscale="log")
        number_ticks(axes, lengths, **turned)
    shown = [label for label in axes.get_xticklabels() if label.get_visible()]
    assert {"128", "512"} <= {label.get_text() for label in shown}
    assert not {"130", "132", "4,100"} & {label.get_text() for label in shown}
    if not turned:
        boxes = [label.get_window_extent() for label in shown]
        assert all(first.x1 < second.x0 for first, second in itertools.pairwise(boxes))
    assert (tmp_path / "a.png").stat().st_size > 1000
