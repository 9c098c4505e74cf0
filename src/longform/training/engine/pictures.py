"""The picture of a training as a PNG file, drawn without a display where matplotlib is installed."""

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.data.storage import atomic_write


def learning_curve(rows: Sequence[Mapping[str, Any]], event: str, metric: str, path: Path) -> None:
    """Loss of the training and ``metric`` of the ``event`` that measures it, against optimiser steps, from the rows of
    records.jsonl. A warning says why it could not be drawn, which loses nothing of a run.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure, memory = Figure(figsize=(6.4, 4.0), dpi=120, layout="constrained"), io.BytesIO()
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        other = axes.twinx()
        for where, kind, value, colour in ((axes, "train", "loss", "tab:blue"), (other, event, metric, "tab:orange")):
            found = [row for row in rows if row["event"] == kind and row.get(value) is not None]
            where.plot([row["step"] for row in found], [row[value] for row in found], color=colour, marker=".")
            where.set_ylabel(f"{value} ({kind})", color=colour)
        axes.set_xlabel("optimiser steps")
        figure.savefig(memory, format="png")
    except (MemoryError, OSError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        warnings.warn(f"{path.name} could not be drawn ({reason}); the rest of the run is saved", stacklevel=3)
        return
    with atomic_write(path, "wb") as file:
        file.write(memory.getvalue())
