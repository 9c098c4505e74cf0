"""Pictures as PNG files, drawn without a display and without pyplot."""

import contextlib
import io
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

from longform.data.storage import atomic_write
from longform.data.text import clean_text
from longform.errors import require

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


@contextlib.contextmanager
def optional(what: str) -> Generator[None]:
    """What is drawn inside may fail: a warning says so, because all else of the run is worth more than its pictures."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        warnings.warn(f"{what} could not be drawn ({reason}); the rest of the run is saved", stacklevel=3)


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


def number_log_axis(axes: Any) -> None:
    """Plain numbers on the logarithmic y axis of ``axes``: at 1, 2 and 5 where it spans less than two decades."""
    low, high = axes.get_ylim()
    steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axes.yaxis.set_major_locator(require("matplotlib.ticker", extra="train").LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()


def colours(count: int) -> list[Any]:
    """``count`` colours in an order that the eye follows, from dark to light."""
    viridis = require("matplotlib", extra="train").colormaps["viridis"]
    return [viridis(0.9 * place / max(1, count - 1)) for place in range(count)]


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG; the file appears whole or not at all."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        for scripts in ("Glyph .* missing from font", "Matplotlib currently does not support"):  # boxes are drawn
            warnings.filterwarnings("ignore", scripts)
        figure.savefig(buffer, format="png")
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())
