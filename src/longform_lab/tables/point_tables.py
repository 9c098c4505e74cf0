"""Tables and the picture of the experiment with points: errors of each kind of attention, by its best rate."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from longform_lab.pictures import finish, picture
from longform_lab.records import Record
from longform_lab.tables.table_kinds import MISSING, Cells, Rows, Table

TASKS = {"shuffled": "16 x 16, shuffled", "raster": "16 x 16, in order", "cloud": "1,024 of 64 x 64"}
TESTED = {"shuffled": (16, 32), "raster": (16, 32), "cloud": (64,)}


class Chosen(NamedTuple):
    """A kind's ``rows`` of all seeds on a ``task``, at the rate with the smallest validation error of seed 0; and how
    many ``rates`` there were to choose from.
    """

    task: str
    kind: str
    rows: list[Any]
    rates: int

    def mean(self, metric: str) -> float | None:
        """Over the seeds; None where nothing was measured."""
        found = [row["metrics"][metric] for row in self.rows if metric in row["metrics"]]
        return fmean(found) if found else None


def chosen(rows: Rows) -> list[Chosen]:
    """The rows of each task and kind, as they came."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row["settings"]["task"], row["settings"]["kind"]), []).append(row)
    found = []
    for (task, kind), own in groups.items():
        first = [row for row in own if row["settings"]["seed"] == 0]
        best = min(first, key=lambda row: row["metrics"]["validation"])["settings"]["rate"]
        found.append(Chosen(task, kind, [row for row in own if row["settings"]["rate"] == best], len(first)))
    return found


def _points(rows: Rows) -> Cells:
    """A row for each kind of attention and task: errors, what they cost, and how often that was measured."""
    cells = []
    for each in sorted(chosen(rows), key=lambda one: (list(TASKS).index(one.task), one.mean("validation"))):
        settings = each.rows[0]["settings"]
        errors = [each.mean(f"error_{side}") for side in TESTED[each.task]]
        shown = [MISSING if error is None else f"{error:.4f}" for error in errors]
        cells.append([
            TASKS[each.task], each.kind, *[*shown, MISSING][:2], f"{settings['parameters']:,}",
            f"{each.mean('cpu_seconds'):,.0f}", f"{settings['rate']:g} of {each.rates}", str(len(each.rows)),
        ])  # fmt: skip
    heads = ["points", "attention", "error", "error at twice the side", "parameters", "CPU s", "rate", "seeds"]
    return heads, cells


def draw_points(records: Sequence[Record], folder: Path) -> list[Path]:
    """Error against seconds of training, a point for each kind of attention on shuffled points."""
    rows = [vars(record) for record in records if record.name == "points"]
    found = [each for each in chosen(rows) if each.task == "shuffled"]
    if not found:
        return []
    with picture(folder / "points.png", 6.5, 4.5) as axes:
        for each in found:
            place = each.mean("cpu_seconds"), each.mean("error_16")
            axes.plot(*place, "o", color="tab:red" if each.kind == "latent" else "tab:blue")
            axes.annotate(each.kind, place, xytext=(5, 4), textcoords="offset points", fontsize=8)
        axes.margins(x=0.25)
        finish(axes, "Darcy flow on 16 x 16 points in any order", "CPU seconds of training", "relative error")
    return [folder / "points.png"]


POINT_TABLES = {"points": Table(make=_points, records="points", where={"settings.task": tuple(TASKS)})}
