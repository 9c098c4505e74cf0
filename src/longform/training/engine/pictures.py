"""Pictures of a training as PNG files, drawn without a display where matplotlib is installed."""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longform.data.storage import atomic_write
from longform.data.text import clean_text

DRAWN, LONGEST = 30, 40  # classes of a confusion matrix, and characters of a name, as many as can be read


def learning_curve(rows: Sequence[Mapping[str, Any]], event: str, metric: str, path: Path) -> None:
    """Loss of the training and ``metric`` of the ``event`` that measures it, against optimiser steps, from the rows of
    records.jsonl.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        other = axes.twinx()
        for where, kind, value, colour in ((axes, "train", "loss", "tab:blue"), (other, event, metric, "tab:orange")):
            found = [row for row in rows if row["event"] == kind and row.get(value) is not None]
            where.plot([row["step"] for row in found], [row[value] for row in found], color=colour, marker=".")
            where.set_ylabel(f"{value} ({kind})", color=colour)
        axes.set_xlabel("optimiser steps")

    _save(path, (6.4, 4.0), draw)


def confusion_matrix(counts: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Counts, rows truth, columns prediction, of the ``DRAWN`` most confused labels; colours are shares of a row."""
    matrix = np.asarray(counts)
    wrong = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * matrix.diagonal()
    drawn = np.sort(np.argsort(-wrong, kind="stable")[:DRAWN])
    names = [" ".join(clean_text(labels[place])[0].split())[:LONGEST].replace("$", r"\$") for place in drawn]
    shares = (matrix / matrix.sum(axis=1, keepdims=True).clip(min=1))[np.ix_(drawn, drawn)]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        figure.colorbar(axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0), label="share of the true label's texts")
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="predicted", ylabel="true")
        if len(drawn) < len(labels):
            axes.set_title(f"the {len(drawn)} most confused of {len(labels):,} labels", fontsize=11)
        for row, column in zip(*shares.nonzero(), strict=True):
            colour = "white" if shares[row, column] > 0.5 else "black"
            text = str(matrix[drawn[row], drawn[column]])
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)

    size = max(4.0, 0.55 * len(drawn) + 2.0)
    _save(path, (size + 0.8, size), draw)


def _save(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """The picture of ``size`` in inches; a warning says why it could not be drawn, which loses nothing of a run."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure, memory = Figure(figsize=size, dpi=120, layout="constrained"), io.BytesIO()
        FigureCanvasAgg(figure)
        with warnings.catch_warnings():
            for scripts in ("Glyph .* missing from font", "Matplotlib currently does not support"):  # boxes are drawn
                warnings.filterwarnings("ignore", scripts)
            draw(figure)
            figure.savefig(memory, format="png")
    except (MemoryError, OSError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        warnings.warn(f"{path.name} could not be drawn ({reason}); the rest of the run is saved", stacklevel=4)
        return
    with atomic_write(path, "wb") as file:
        file.write(memory.getvalue())
