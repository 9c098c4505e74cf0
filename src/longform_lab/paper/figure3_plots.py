"""The picture of Figure 3: perplexity against updates, and the final loss of every seed."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longform_lab.paper.figure3_plan import FIGURES, Plan
from longform_lab.paper.parts import Finished
from longform_lab.pictures import finish, picture

SAID = {"unigram_loss": "predicting frequencies alone", "bigram_loss": "predicting from the token before"}

COLOURS = (
    "black",
    "tab:blue",
    "tab:orange",
    "tab:green",
    "tab:red",
    "tab:purple",
    "tab:brown",
    "tab:pink",
    "tab:olive",
    "tab:cyan",
)
FIRST, AGAIN = {"marker": "o"}, {"marker": "s", "linestyle": "-."}  # lines, and those whose colour another one has


def draw_figure3(plan: Plan, finished: Sequence[Finished], path: Path) -> None:
    """Left: mean over seeds with the range between the lowest and the highest. Right: a mark a seed."""
    every = [(curve, [one for one in finished if one.record.settings["curve"] == curve.key]) for curve in plan.curves]
    groups = [(curve, group) for curve, group in every if group]
    with picture(path, 13.0, max(6.6, 2.6 + 0.48 * len(groups)), 1, 2, width_ratios=(1.5, 1.0)) as (left, right):
        left.figure.suptitle(FIGURES[plan.figure][0].upper() + FIGURES[plan.figure][1:])
        for place, (curve, group) in enumerate(groups):
            style = {"color": COLOURS[place % len(COLOURS)], **(FIRST if place < len(COLOURS) else AGAIN)}
            _line(left, group, style, curve.label)
            _marks(right, group, style, place)
        _finish_curves(left, finished, from_twin=plan.twin is not None)
        _finish_marks(right, groups)


def _line(axes: Any, group: Sequence[Finished], style: dict[str, Any], label: str) -> None:
    steps = [row["step"] for row in group[0].kept]
    by_step = [[one.kept[at]["perplexity"] for one in group if at < len(one.kept)] for at in range(len(steps))]
    mean = [sum(values) / len(values) for values in by_step]
    axes.plot(steps, mean, linewidth=1.8, markersize=3, label=label, **style)
    lowest, highest = list(map(min, by_step)), list(map(max, by_step))
    axes.fill_between(steps, lowest, highest, color=style["color"], alpha=0.15, linewidth=0)


def _marks(axes: Any, group: Sequence[Finished], style: dict[str, Any], place: int) -> None:
    colour, marker = style["color"], style["marker"]
    losses = [one.row["metrics"]["loss"] for one in group]
    axes.plot(losses, [place] * len(losses), marker, color=colour, alpha=0.6)
    mean = sum(losses) / len(losses)
    axes.plot([mean], [place], "|", color=colour, markersize=22, markeredgewidth=2.2)
    axes.annotate(
        f"{mean:.3f}",
        (max(losses), place),
        xytext=(9, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=colour,
    )


def _draw_counted(axes: Any, metrics: Sequence[Any]) -> None:
    """A line for each loss of counting alone."""
    for (name, said), style in zip(SAID.items(), ("--", ":"), strict=True):
        if counted := [one[name] for one in metrics if one.get(name) is not None]:
            level = math.exp(max(counted))
            axes.axhline(level, color="tab:gray", linestyle=style, label=f"{said} ({level:,.0f})")


def _finish_curves(axes: Any, finished: Sequence[Finished], *, from_twin: bool) -> None:
    metrics = [one.row["metrics"] for one in finished]
    _draw_counted(axes, metrics)
    highest = math.exp(max(one["unigram_loss"] for one in metrics))
    later = [row["perplexity"] for one in finished for row in one.kept if row["step"] > 0 or from_twin]
    counts = Counter(one.record.settings["curve"] for one in finished).values()
    several = f"mean of {'up to ' * (len(set(counts)) > 1)}{max(counts)} seeds, range shaded"
    limits = min(later) * 0.93, max(highest, *later) * 1.1
    title, across = several if max(counts) > 1 else "one seed", "updates (optimiser steps)"
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2, "frameon": False, "fontsize": 9}
    finish(axes, title, across, "validation perplexity (logarithmic)", legend=below, yscale="log", ylim=limits)


def _finish_marks(axes: Any, groups: Sequence[Any]) -> None:
    axes.set_yticks(range(len(groups)), [curve.label.replace(", n = ", "\nn = ") for curve, _ in groups], fontsize=9)
    axes.set_ylim(len(groups) - 0.4, -0.7)
    axes.margins(x=0.18)
    finish(axes, "At the end: a dot a seed, the mean as a bar", "final validation loss, nats a hidden token", "")
