"""The cells of the benchmark that the paper's Tables 1 and 3 need, in two scales, and the axes of their plots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError
from longform.inference.loading import pick_device
from longform.runs.folder import open_run_folder
from longform_lab.pictures import finish, number_ticks
from longform_lab.records import Record
from longform_lab.speed.cell_run import Effort
from longform_lab.speed.competitors import chosen_competitors
from longform_lab.speed.grid import run_grid
from longform_lab.speed.selection import Selection, cells_of, chosen_threads, with_choices
from longform_lab.speed.shapes import Cell

GRID = "grid"  # the folder of what the grid measured
RIVALS = ("ours-linear", "sdpa", "unfused")
OTHERS = ("longformer", "bigbird", "nystromformer", "recurrent")
ARCHITECTURES = ("unfused", "sdpa", *OTHERS, "ours-linear", "ours-window")
PAPER_LENGTHS = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
PAPER_SLOTS = (128, 256, 512, 1_024, 2_048)
SELECTIONS = {
    ("table3", "tiny"): Selection(lengths=(128, 256), sizes=("tiny",), slots=(64,), competitors=RIVALS),
    ("table1", "tiny"): Selection(lengths=(128, 256), sizes=("tiny",), slots=(64,), competitors=(*RIVALS, "recurrent")),
    ("table3", "small"): Selection(lengths=PAPER_LENGTHS[:4], sizes=("base",), slots=PAPER_SLOTS, competitors=RIVALS),
    ("table3", "paper"): Selection(lengths=PAPER_LENGTHS, sizes=("base",), slots=PAPER_SLOTS, competitors=RIVALS),
    ("table1", "small"): Selection(lengths=PAPER_LENGTHS[:5], competitors=ARCHITECTURES),
    ("table1", "paper"): Selection(lengths=PAPER_LENGTHS, sizes=("base",), competitors=ARCHITECTURES),
}
EFFORTS = {
    "tiny": Effort(repeats=1, cell_seconds=20.0, floors="none"),
    "small": Effort(repeats=3, cell_seconds=60.0, floors="none"),
    "paper": Effort(floors="none"),
}


def chosen_cells(
    subject: str, scale: str, *, lengths: Sequence[int] = (), device: str = "auto"
) -> tuple[list[Cell], tuple[str, ...]]:
    """The cells of "table1" or "table3" and their competitors; ``lengths``: in place of the scale's.

    Raises ConfigurationError for values that do not exist.
    """
    if any(length < 2 for length in lengths):
        raise ConfigurationError(f"lengths={list(lengths)}: each is 2 tokens or more")
    chosen = with_choices(SELECTIONS[subject, scale], lengths=list(lengths))
    cells = cells_of(chosen, device=pick_device(device).type, threads=chosen_threads(None))
    if subject == "table3":
        cells = [cell for cell in cells if cell.slots in chosen.slots and 2 * cell.slots <= cell.length]
        if not cells:
            wanted = f"slots={list(chosen.slots)} for lengths={list(chosen.lengths)}"
            raise ConfigurationError(f"{wanted}: k above n/2 is not measured, and none is as small")
    return cells, chosen.competitors


def open_grid(output: Path, table: str, scale: str, cells: Sequence[Cell]) -> None:
    """See that ``output`` is for this table alone: the same scale, lengths, k, size, dtype, device and threads.

    Raises ConfigurationError that shows the difference.
    """
    wanted = {
        "table": table,
        "scale": scale,
        "lengths": sorted({cell.length for cell in cells}),
        "slots": sorted({cell.slots for cell in cells}),
        **common_settings(cells[0]),
    }
    open_run_folder(output, "reproduce.json", wanted, what="measurements")


def measured_cells(cells: Sequence[Cell], names: Sequence[str], scale: str, output: Path) -> list[Record]:
    """Records of all cells; what ``output`` has is not measured again."""
    return run_grid(cells, chosen_competitors(names), EFFORTS[scale], output=output / GRID)


def described(cell: Cell) -> str:
    """Settings that a table's cells have in common, in words."""
    size = cell.shape.size
    place = f"{cell.threads} thread{'s' * (cell.threads > 1)}" if cell.device == "cpu" else cell.device
    return f"{size.layers} layers of width {size.hidden}, {cell.dtype}, one text a pass, {place}"


def common_settings(cell: Cell) -> dict[str, Any]:
    """Settings that a table's cells have in common, for records."""
    return {"size": cell.size, "dtype": cell.dtype, "device": cell.device, "threads": cell.threads}


def by_length(records: Iterable[Record], metric: str) -> dict[int, float]:
    """n -> the lowest of a metric that the records have, shortest texts first; without those that lack it."""
    found: dict[int, float] = {}
    for record in records:
        n, value = record.settings["length"], record.metrics.get(metric)
        if isinstance(value, int | float):
            found[n] = min(float(value), found.get(n, math.inf))
    return dict(sorted(found.items()))


def plot_by_length(axes: Any, points: Mapping[int, float], **options: Any) -> None:
    """A line of values above 0 against n, if there are any."""
    if shown := {n: value for n, value in points.items() if value > 0}:
        axes.plot(list(shown), list(shown.values()), markersize=5, **options)


def finish_axes(axes: Any, title: str, up: str, **legend: Any) -> None:
    """A plot against n, both axes logarithmic, with every n that was measured as a tick."""
    lengths = sorted({int(value) for line in axes.get_lines() for value in line.get_xdata() if value > 1})
    across, logarithmic = "n, tokens of a text (logarithmic)", {"xscale": "log", "yscale": "log"}
    finish(axes, title, across, up, legend={"fontsize": 9, **legend}, **logarithmic)
    number_ticks(axes, lengths)
