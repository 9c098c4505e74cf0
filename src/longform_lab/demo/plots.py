"""Pictures of the demo's report: learning curves, and time and memory of a document against its length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.pictures import finish, number_ticks, picture
from longform_lab.demo.measuring import LONG, LONGER, ORIGINAL

COLOURS = {LONG: "#0b7a75", ORIGINAL: "#d1662b", LONGER: "#7a5ea8"}
NAMES = {LONG: "Longform", ORIGINAL: "original", LONGER: "original's full attention, longer position table"}
Rows = Sequence[Mapping[str, Any]]
Points = Sequence[tuple[float, float]]


def draw_learning(tuned: Mapping[str, Rows], healing: Rows, path: Path) -> None:
    """Loss and validation score of both fine-tunings (``tuned``: model -> records), and the loss of healing."""
    with picture(path, 13.0, 3.9, 1, 3) as (loss, score, healed):
        for name, rows in tuned.items():
            _line(loss, name, smooth(_points(rows, "train", "loss")))
            _line(score, name, _points(rows, "evaluation", "macro_f1"), marker="o")
        _line(healed, LONG, smooth(_points(healing, "train", "loss")))
        finish(loss, "Fine-tuning: training loss", "optimiser steps", "cross-entropy")
        finish(score, "Fine-tuning: validation", "optimiser steps", "macro-F1")
        finish(healed, "Healing: training loss", "optimiser steps", "distance to the original")


def draw_lengths(rows: Rows, path: Path) -> None:
    """Time and memory of one document against its tokens, both logarithmic; what was not measured is left out."""
    with picture(path, 13.0, 4.6, 1, 2) as (left, right):
        for axes, value, what, unit in ((left, "seconds", "Time", "seconds"), (right, "mib", "Peak memory", "MiB")):
            for name in NAMES:
                points = [(row["length"], row[value]) for row in rows if row["model"] == name and (row[value] or 0) > 0]
                _line(axes, name, points, marker="o")
            across, up = "tokens (logarithmic)", f"{unit} (logarithmic)"
            finish(axes, f"{what} of one document", across, up, xscale="log", yscale="log")
            number_ticks(axes, sorted({row["length"] for row in rows}), rotation=30, ha="right")


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
