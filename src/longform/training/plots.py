"""Pictures of a run: learning curve and confusion matrix, as PNG. Drawn without a display and without pyplot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longform.runs.pictures import literal, picture


def learning_curve(records: Sequence[dict[str, Any]], metric: str, path: Path) -> None:
    """Training loss and the validation metric against optimiser steps; ``records`` as in records.jsonl."""
    with picture(path, 6.4, 4.0) as axes:
        train = [row for row in records if row["event"] == "train"]
        measured = [row for row in records if row["event"] == "evaluation" and row.get(metric) is not None]
        axes.plot(
            [row["step"] for row in train], [row["loss"] for row in train], color="tab:blue", label="training loss"
        )
        axes.set_xlabel("optimiser steps")
        axes.set_ylabel("training loss", color="tab:blue")
        other = axes.twinx()
        other.plot(
            [row["step"] for row in measured], [row[metric] for row in measured], color="tab:orange", marker="o",
            label=f"validation {metric}",
        )  # fmt: skip
        other.set_ylabel(f"validation {metric}", color="tab:orange")


def confusion_matrix(counts: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Counts, rows truth, columns prediction; colours are shares of a row."""
    size = max(4.0, 0.55 * len(labels) + 2.0)
    with picture(path, size + 0.8, size) as axes:
        shares = [[value / max(1, sum(row)) for value in row] for row in counts]
        image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
        names = [literal(label) for label in labels]
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        for row, values in enumerate(counts):
            for column, value in enumerate(values):
                colour = "white" if shares[row][column] > 0.5 else "black"
                if value:
                    axes.text(column, row, str(value), ha="center", va="center", color=colour, fontsize=8)
        axes.figure.colorbar(image, ax=axes, label="share of the true label's texts")
