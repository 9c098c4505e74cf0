"""Pictures as PNG files, drawn without a display and without pyplot."""

import contextlib
import io
import math
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

from longform.data.storage import atomic_write
from longform.data.text import clean_text
from longform.errors import require

LONGEST = 40  # characters of a name in a picture
FEWEST, MOST = 4, 9  # ticks of a logarithmic axis
ROUND = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))  # digits of ticks, from round to less so
APART = 3  # pixels between two labels
PLAIN = (1e-4, 1e6)  # numbers between these are written out, others as powers of ten


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


def number_ticks(axes: Any, values: Any, **options: Any) -> None:
    """Ticks of the x axis at ``values`` alone, as whole numbers with separators."""
    axes.set_xticks(values, [f"{value:,.0f}" for value in values], **options)
    axes.minorticks_off()


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from ``low`` to ``high`` for a logarithmic axis: the roundest that are FEWEST or more.

    Of many decades every second, third ... one.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ROUND:
        ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        inside = [tick for tick in ticks if low <= tick * (1 + 1e-9) and tick <= high * (1 + 1e-9)]
        if len(inside) >= FEWEST:
            return inside[:: math.ceil(len(inside) / MOST)] if digits == (1,) else inside
    linear = require("matplotlib.ticker", extra="train").MaxNLocator(FEWEST + 2, steps=[1, 2, 2.5, 5, 10])
    return [float(tick) for tick in linear.tick_values(low, high) if low <= tick <= high]


def _log_axes(figure: Any) -> list[Any]:
    return [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_scale() == "log"]


def _number(axis: Any) -> None:
    """Round ticks, in plain numbers, on a logarithmic axis that has no ticks of its own."""
    if not isinstance(axis.get_major_locator(), require("matplotlib.ticker", extra="train").LogLocator):
        return
    ticks = log_ticks(*sorted(axis.get_view_interval()))
    plain = all(PLAIN[0] <= tick < PLAIN[1] for tick in ticks)
    decades = all(f"{tick:e}".startswith("1.000000") for tick in ticks)
    powers = [rf"$10^{{{math.log10(tick):.0f}}}$" for tick in ticks]
    axis.set_ticks(ticks, [f"{tick:,g}" for tick in ticks] if plain or not decades else powers)
    axis.set_minor_locator(require("matplotlib.ticker", extra="train").NullLocator())


def _hide_overlapping(axis: Any) -> None:
    """Show those tick labels alone that begin after the last one that is shown."""
    end = -math.inf
    for tick in axis.get_major_ticks():
        label = tick.label1
        box, turned = label.get_window_extent(), math.sin(math.radians(label.get_rotation()))
        low, high = (box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1)
        if axis.axis_name == "x" and turned:  # beside each other, turned lines need their height
            height = label.get_fontsize() * axis.figure.dpi / 72 / abs(turned)
            place = axis.axes.transData.transform((tick.get_loc(), 1.0))[0]
            low, high = place - height / 2, place + height / 2
        shown = low > end + APART
        label.set_visible(shown)
        if shown:
            end = high


def make_readable(figure: Any) -> None:
    """Logarithmic axes get round ticks, also within one decade, and labels that do not overlap."""
    if axes := _log_axes(figure):
        for axis in axes:
            _number(axis)
        figure.draw_without_rendering()  # labels have their places then
        for axis in axes:
            _hide_overlapping(axis)


def colours(count: int) -> list[Any]:
    """``count`` colours in an order that the eye follows, from dark to light."""
    viridis = require("matplotlib", extra="train").colormaps["viridis"]
    return [viridis(0.9 * place / max(1, count - 1)) for place in range(count)]


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, its axes made readable; the file appears whole or not at all."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        for scripts in ("Glyph .* missing from font", "Matplotlib currently does not support"):  # boxes are drawn
            warnings.filterwarnings("ignore", scripts)
        make_readable(figure)
        figure.savefig(buffer, format="png")
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())
