"""Two pictures a series of cells: time and memory of a pass against n, both axes logarithmic."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform_lab.pictures import finish, picture
from longform_lab.records import Record
from longform_lab.speed.competitor import Competitor

STYLES = {"ours": "-", "full": "-", "peer": "--", "sparse": ":"}
COLOURS = {
    "ours": (
        "#0b6e4f",
        "#2a9d6f",
        "#55b88a",
        "#7fcfa8",
        "#0f8b8d",
        "#143642",
        "#6a994e",
        "#a7c957",
        "#386641",
        "#99d98c",
    ),
    "full": ("#c1121f", "#e76f51", "#780000"),
    "peer": ("#7b2cbf", "#b388eb", "#5a189a"),
    "sparse": ("#f4a261", "#8d6e63", "#e9c46a", "#6d6875"),
}
MARKERS = "os^Dv<>pPX*h"
SIZE = (8.4, 5.0)


def plot_times(records: Sequence[Record], competitors: Mapping[str, Competitor], title: str, path: Path) -> None:
    """Seconds of a pass against tokens of a text, a line a competitor, and the floor of the pure Linformer."""
    floor = sorted(
        (record.settings["length"], record.metrics["floor_seconds"])
        for record in records
        if record.settings["competitor"] == "ours-linear" and record.metrics.get("floor_seconds")
    )
    with picture(path, *SIZE) as axes:
        _lines(axes, records, competitors, "seconds")
        if floor:
            style = {"color": "black", "linewidth": 1, "linestyle": (0, (1, 1))}
            axes.plot(*zip(*floor, strict=True), label="floor, linear", **style)
        _finish(axes, title, "seconds of a pass")


def plot_memory(records: Sequence[Record], competitors: Mapping[str, Competitor], title: str, path: Path) -> None:
    """MiB that a pass takes above the loaded model, against tokens of a text, a line a competitor."""
    with picture(path, *SIZE) as axes:
        _lines(axes, records, competitors, "peak_mib")
        _finish(axes, title, "peak memory of a pass above the loaded model, MiB")


def _lines(axes: Any, records: Sequence[Record], competitors: Mapping[str, Competitor], metric: str) -> None:
    used: dict[str, int] = {}
    for index, (name, competitor) in enumerate(competitors.items()):
        every = sorted(
            (record.settings["slots"], record.settings["length"], record.metrics[metric])
            for record in records
            if record.settings["competitor"] == name and record.metrics.get(metric)
        )
        points = sorted({length: value for _, length, value in every}.items())  # of the largest k; others are in tables
        place = used.get(competitor.family, 0)
        used[competitor.family] = place + 1
        if points:
            colours = COLOURS[competitor.family]
            axes.plot(
                *zip(*points, strict=True),
                color=colours[place % len(colours)],
                linestyle=STYLES[competitor.family],
                marker=MARKERS[index % len(MARKERS)],
                markersize=5,
                linewidth=1.7,
                label=competitor.label,
            )


def _finish(axes: Any, title: str, up: str) -> None:
    beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
    finish(axes, title, "tokens of a text (n)", up, legend=beside, xscale="log", yscale="log")
    axes.set_xscale("log", base=2)
    axes.tick_params("x", rotation=30)
