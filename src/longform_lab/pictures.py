"""Pictures as PNG files, drawn without a display and without pyplot."""

import contextlib
import io
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

from longform.errors import require
from longform.files import atomic_write
from longform_text.data.text import clean_text

LONGEST = 40  # characters of a name in a picture


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib Figure of ``width`` x ``height`` inches."""
    figure = require("matplotlib.figure", extra="train").Figure(figsize=(width, height), dpi=120, layout="constrained")
    require("matplotlib.backends.backend_agg", extra="train").FigureCanvasAgg(figure)
    return figure


@contextlib.contextmanager
def picture(path: Path, width: float, height: float, *grid: int, **options: Any) -> Generator[Any]:
    """The axes of a picture of ``width`` x ``height`` inches, which is saved when the block ends.

    ``grid``, ``options``: rows, columns and more, as matplotlib's ``subplots`` takes them; one pair of axes without.
    """
    figure = new_figure(width, height)
    yield figure.subplots(*grid, **options)
    save_figure(figure, path)


def finish(
    axes: Any, title: str, across: str, up: str, *, legend: dict[str, Any] | None = None, **options: Any
) -> None:
    """Title, labels, a grid, and a legend where a line has a label; ``options``: scales, limits, as ``axes.set``."""
    axes.set(xlabel=across, ylabel=up, **options)
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(**{"fontsize": 8, **(legend or {})})


def literal(name: str) -> str:
    """A file's or class's name as it is to be seen, in one line of at most ``LONGEST`` characters.

    matplotlib takes what stands between two $ for a formula, and lone surrogates are in no font.
    """
    line = " ".join(clean_text(name)[0].split())
    return (line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…").replace("$", r"\$")


def _number(axis: Any) -> None:
    """Round ticks in plain numbers on a logarithmic axis, within one decade too; powers of two where 2 is its base."""
    ticker = require("matplotlib.ticker", extra="train")
    low, high = sorted(axis.get_view_interval())
    base = axis.get_transform().base
    digits = (1.0,) if base == 2 or high > 1000 * low else (1.0, 2.0, 5.0)
    narrow = base != 2 and high < 10 * low
    axis.set_major_locator(ticker.MaxNLocator(6) if narrow else ticker.LogLocator(base, digits))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(ticker.NullLocator())


def colours(count: int) -> list[Any]:
    """``count`` colours in an order that the eye follows, from dark to light."""
    viridis = require("matplotlib", extra="train").colormaps["viridis"]
    return [viridis(0.9 * place / max(1, count - 1)) for place in range(count)]


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, with round ticks; the file appears whole or not at all."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        for scripts in ("Glyph .* missing from font", "Matplotlib currently does not support"):  # boxes are drawn
            warnings.filterwarnings("ignore", scripts)
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            if axis.get_scale() == "log":
                _number(axis)
        figure.savefig(buffer, format="png")
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())
