"""Pictures as PNG files, drawn without a display and without pyplot."""

import io
from pathlib import Path
from typing import Any

from longform.data.text import atomic_write
from longform.errors import require


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib Figure of ``width`` x ``height`` inches."""
    figure = require("matplotlib.figure", extra="train").Figure(figsize=(width, height), dpi=120, layout="constrained")
    require("matplotlib.backends.backend_agg", extra="train").FigureCanvasAgg(figure)
    return figure


def literal(name: str) -> str:
    """A file's or class's name as it is to be seen: matplotlib takes what stands between two $ for a formula."""
    return name.replace("$", r"\$")


def number_log_axis(axes: Any) -> None:
    """Plain numbers on the logarithmic y axis of ``axes``: at 1, 2 and 5 where it spans less than two decades."""
    low, high = axes.get_ylim()
    steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axes.yaxis.set_major_locator(require("matplotlib.ticker", extra="train").LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG; the file appears whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())
