"""The picture of Figure 3: perplexity against updates."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longform_lab.paper.figure3_plan import FIGURES, Plan
from longform_lab.paper.parts import Finished
from longform_lab.pictures import finish, picture

SAID = {"unigram_loss": "predicting frequencies alone", "bigram_loss": "predicting from the token before"}


def draw_figure3(plan: Plan, finished: Sequence[Finished], path: Path) -> None:
    """A line a model: the mean over seeds, with the range between the lowest and the highest."""
    with picture(path, 9.0, 7.0) as axes:
        for curve in plan.curves:
            group = [one for one in finished if one.record.settings["curve"] == curve.key]
            if group:
                _line(axes, group, curve.label)
        levels = _draw_counted(axes, [one.row["metrics"] for one in finished])
        later = [row["perplexity"] for one in finished for row in one.kept if row["step"] > 0 or plan.twin is not None]
        limits = min(later) * 0.93, max(*later, *levels) * 1.1
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2, "frameon": False, "fontsize": 9}
        title, across = FIGURES[plan.figure], "updates (optimiser steps)"
        finish(axes, title, across, "validation perplexity (logarithmic)", legend=below, yscale="log", ylim=limits)


def _draw_counted(axes: Any, metrics: Sequence[Any]) -> list[float]:
    """A line for the perplexity of each way of counting, which are returned."""
    levels = []
    for (name, said), style in zip(SAID.items(), ("--", ":"), strict=True):
        counted = [one[name] for one in metrics if one.get(name) is not None]
        if counted:
            levels.append(math.exp(max(counted)))
            axes.axhline(levels[-1], color="tab:gray", linestyle=style, label=f"{said} ({levels[-1]:,.0f})")
    return levels


def _line(axes: Any, group: Sequence[Finished], label: str) -> None:
    steps = [row["step"] for row in group[0].kept]
    by_step = [[one.kept[at]["perplexity"] for one in group if at < len(one.kept)] for at in range(len(steps))]
    (line,) = axes.plot(steps, [sum(values) / len(values) for values in by_step], "o-", markersize=3, label=label)
    lowest, highest = list(map(min, by_step)), list(map(max, by_step))
    axes.fill_between(steps, lowest, highest, color=line.get_color(), alpha=0.15, linewidth=0)
