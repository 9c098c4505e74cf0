"""Records of a training run, written while it goes as JSON lines; a line shown for each, and in the end their curve."""

import io
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from tqdm import tqdm

from longform.errors import InputError
from longform.files import atomic_write, whole_lines, write_lines

FILE = "records.jsonl"


class Records:
    """Events of a run, in memory and, with a folder, in its ``records.jsonl``; one dictionary each, with its step.

    ``writes``: this process is the one that keeps the file; the others only read it.
    """

    def __init__(self, folder: Path | None, *, writes: bool = True) -> None:
        self.path = None if folder is None else folder / FILE
        self.writes = writes and folder is not None
        self.rows: list[dict[str, Any]] = []
        self.before = 0.0  # seconds of the run's earlier starts
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of the run so far, those of its earlier starts included."""
        return round(self.before + time.perf_counter() - self.began, 2)

    def restore(self, step: int, *, ended: bool = False) -> None:
        """Take up the records of a run, without those after ``step`` and, unless it has ``ended``, of its end: they
        will be made again.
        """
        if self.path is None or not self.path.exists():
            return
        with self.path.open("rb") as file:
            rows = [row for _, row in whole_lines(file) if _is_record(row)]
        self.rows = [row for row in rows if row["step"] <= step and (ended or row["event"] != "end")]
        self.before = max((row.get("seconds", 0.0) for row in self.rows), default=0.0)
        self._rewrite()

    def begin(self) -> None:
        """Forget what an earlier run in the folder wrote."""
        self.rows, self.before = [], 0.0
        self._rewrite()

    def _rewrite(self) -> None:
        if self.writes and self.path is not None:
            write_lines(self.path, self.rows)

    def add(self, event: str, step: int, **values: Any) -> dict[str, Any]:
        """Append one event, with the seconds so far. Raises InputError for a measured value that is NaN or infinite."""
        for name, value in values.items():
            if isinstance(value, float) and not isfinite(value):
                raise InputError(f"{event}: {name} is {value} at step {step}: lower learning_rate, or look at the data")
        line = json.dumps({"event": event, "step": step, **values, "seconds": self.seconds})
        row = json.loads(line)  # as a resumed run will read it
        self.rows.append(row)
        if self.writes and self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        return row

    def last(self, event: str) -> dict[str, Any] | None:
        """The newest record of this kind."""
        return next((row for row in reversed(self.rows) if row["event"] == event), None)

    def best(self, event: str, metric: str) -> tuple[int, int]:
        """The step of the record with the best ``metric``, and how many of its kind came after it."""
        sign = -1 if metric == "loss" else 1
        rows = self.of(event)
        values = [sign * row[metric] for row in rows]
        place = values.index(max(values))
        return rows[place]["step"], len(rows) - 1 - place

    def of(self, event: str) -> list[dict[str, Any]]:
        """Records of this kind."""
        return [row for row in self.rows if row["event"] == event]


def _is_record(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("step"), int) and "event" in row


def show_measures(description: str, step: int, values: dict[str, float]) -> None:
    """One line about an evaluation, past a progress bar, to standard error."""
    shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
    tqdm.write(f"{description}, step {step:,}: {shown}", file=sys.stderr)


def learning_curve(rows: Sequence[Mapping[str, Any]], event: str, metric: str, path: Path) -> None:
    """Draw, as a PNG file, the loss of the training and the ``metric`` of ``event``, which measures it, from ``rows``.

    Where matplotlib is missing or fails a warning says why, which loses nothing of a run.
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
