"""Pictures of the demo's report: learning curves, and time and memory of a document against its length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.pictures import new_figure, number_log_axis, save_figure
from longform.studies.demo.measuring import LONG, LONGER, ORIGINAL

COLOURS = {LONG: "#0b7a75", ORIGINAL: "#d1662b", LONGER: "#7a5ea8"}
NAMES = {LONG: "Longform", ORIGINAL: "original", LONGER: "original's full attention, longer position table"}
Rows = Sequence[Mapping[str, Any]]
Points = Sequence[tuple[float, float]]


def draw_learning(tuned: Mapping[str, Rows], healing: Rows, path: Path) -> None:
    """Loss and validation score of both fine-tunings (``tuned``: model -> records), and the loss of healing."""
    figure = new_figure(13.0, 3.9)
    panels = figure.subplots(1, 3)
    for name, rows in tuned.items():
        _line(panels[0], name, smooth(_points(rows, "train", "loss")))
        _line(panels[1], name, _points(rows, "evaluation", "macro_f1"), marker="o")
    _line(panels[2], LONG, smooth(_points(healing, "train", "loss")))
    _finish(panels[0], "Fine-tuning: training loss", "optimiser steps", "cross-entropy")
    _finish(panels[1], "Fine-tuning: validation", "optimiser steps", "macro-F1")
    _finish(panels[2], "Healing: training loss", "optimiser steps", "distance to the original")
    save_figure(figure, path)


def draw_lengths(rows: Rows, path: Path) -> None:
    """Time and memory of one document against its tokens, both logarithmic; what was not measured is left out."""
    figure = new_figure(13.0, 4.6)
    left, right = figure.subplots(1, 2)
    for axes, value, what, unit in ((left, "seconds", "Time", "seconds"), (right, "mib", "Peak memory", "MiB")):
        for name in NAMES:
            points = [(row["length"], row[value]) for row in rows if row["model"] == name and (row[value] or 0) > 0]
            _line(axes, name, points, marker="o")
        axes.set(xscale="log", yscale="log")
        _finish(axes, f"{what} of one document", "tokens (logarithmic)", f"{unit} (logarithmic)")
        lengths = sorted({row["length"] for row in rows})
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=30, ha="right")
        number_log_axis(axes)
    save_figure(figure, path)


def smooth(points: Points, width: int = 7) -> Points:
    """Running means of ``width`` values; single batches are noisy."""
    width = max(1, min(width, len(points) // 4))
    groups = [points[at : at + width] for at in range(len(points) - width + 1)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _points(rows: Rows, event: str, value: str) -> Points:
    return [(row["step"], row[value]) for row in rows if row["event"] == event and row.get(value) is not None]


def _line(axes: Any, name: str, points: Points, **options: Any) -> None:
    if points:
        style = "--" if name == LONGER else "-"
        axes.plot(*zip(*points, strict=True), color=COLOURS[name], linestyle=style, label=NAMES[name], **options)


def _finish(axes: Any, title: str, across: str, up: str) -> None:
    axes.set(title=title, xlabel=across, ylabel=up)
    axes.grid(alpha=0.25)
    if axes.get_lines():
        axes.legend(fontsize=8)
