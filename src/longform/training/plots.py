"""Pictures of a run: learning curve and confusion matrix, as PNG. Drawn without a display and without pyplot."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longform.data.storage import atomic_write
from longform.data.text import clean_text
from longform.runs.pictures import literal, picture

DRAWN = 30  # classes of a confusion matrix: as many as can be read


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
    """Counts, rows truth, columns prediction; colours are shares of a row.

    Of many classes the ``DRAWN`` most confused ones are drawn: those with the most texts that are wrongly theirs or
    wrongly another's. ``confusion_table`` has all.
    """
    totals = [max(1, sum(row)) for row in counts]
    drawn = _most_confused(counts)
    size = max(4.0, 0.55 * len(drawn) + 2.0)
    with picture(path, size + 0.8, size) as axes:
        shares = [[counts[row][column] / totals[row] for column in drawn] for row in drawn]
        image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
        names = [literal(labels[place]) for place in drawn]
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        if len(drawn) < len(labels):
            axes.set_title(f"the {len(drawn)} most confused of {len(labels):,} classes", fontsize=11)
        for row, place in enumerate(drawn):
            for column, other in enumerate(drawn):
                colour = "white" if shares[row][column] > 0.5 else "black"
                if value := counts[place][other]:
                    axes.text(column, row, str(value), ha="center", va="center", color=colour, fontsize=8)
        axes.figure.colorbar(image, ax=axes, label="share of the true label's texts")


def _most_confused(counts: Sequence[Sequence[int]]) -> list[int]:
    """At most ``DRAWN`` classes, in their order."""
    matrix = np.asarray(counts)
    wrong = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * matrix.diagonal()
    return sorted(np.argsort(-wrong, kind="stable")[:DRAWN].tolist())


def confusion_table(counts: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """All counts as a csv file: a line for each true and predicted label that occur together."""
    names = [clean_text(label)[0] for label in labels]
    with atomic_write(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["true", "predicted", "texts"])
        for name, row in zip(names, counts, strict=True):
            table.writerows([name, other, value] for other, value in zip(names, row, strict=True) if value)
