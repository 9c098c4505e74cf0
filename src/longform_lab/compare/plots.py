"""The picture of a comparison: accuracy against training time, and how validation accuracy grew."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longform_lab.compare.results import Result
from longform_lab.compare.sequences import SequenceTask
from longform_lab.pictures import finish, literal, picture

COLOURS = {
    "full": "black",
    "longform": "tab:blue",
    "selection": "tab:pink",
    "weighted": "tab:brown",
    "linformer": "tab:cyan",
    "reformer": "tab:orange",
    "longformer": "tab:green",
    "bigbird": "tab:olive",
    "nystromformer": "tab:red",
    "performer": "tab:purple",
    "tfidf": "tab:gray",
}
MARKERS = {"full": "s", "ours": "o", "variant": "D", "others": "^", "baseline": "*"}


def draw_comparison(results: Sequence[Result], task: SequenceTask, path: Path) -> None:
    """Two panels; results without a number are left out."""
    shown = [result for result in results if result.accuracy is not None]
    with picture(path, 12.0, 5.0, 1, 2) as (left, right):
        draw_against_time(left, shown, task=task.name, share=task.counts()["most_frequent_class"])
        _growth(right, shown)


def clock(results: Sequence[Result]) -> str:
    """Processor seconds on a CPU, where other programs run beside; wall-clock seconds on a GPU."""
    return "seconds" if any(result.facts["hardware"]["gpu"] for result in results) else "cpu_seconds"


def draw_against_time(axes: Any, shown: Sequence[Result], *, task: str, share: float) -> None:
    """A mark a result; ``share`` (0 to 1): of the most frequent class of the task of this name."""
    used = clock(shown)
    for result in shown:
        axes.plot(
            [max(getattr(result, used), 0.01)],
            [100 * (result.accuracy or 0.0)],
            MARKERS[result.family],
            linestyle="",
            color=COLOURS[result.name],
            markersize=10,
            label=result.title,
        )
    axes.axhline(100 * share, color="tab:gray", linestyle=":", label="most frequent class")
    across = f"training time, {'wall-clock' if used == 'seconds' else 'processor'} seconds (logarithmic)"
    title = f"{literal(task)}: accuracy against training time"
    finish(axes, title, across, "test accuracy, %", xscale="log" if shown else "linear")


def _growth(axes: Any, shown: Sequence[Result]) -> None:
    for result in shown:
        measured = [row for row in result.rows if "validation_accuracy" in row]
        if measured:
            axes.plot(
                [row["step"] for row in measured],
                [100 * row["validation_accuracy"] for row in measured],
                color=COLOURS[result.name],
                marker=MARKERS[result.family],
                markersize=4,
            )
    finish(axes, "How accuracy grew", "optimiser steps, the same batches for all", "validation accuracy, %")
