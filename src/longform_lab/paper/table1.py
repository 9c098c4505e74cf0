"""The paper's Table 1, measured: the exponents with which time and memory of a pass grow with a text's length."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError
from longform.runs.page import Table
from longform_lab.paper.grid_scales import (
    by_length,
    chosen_cells,
    common_settings,
    described,
    finish_axes,
    measured_cells,
    open_grid,
    plot_by_length,
)
from longform_lab.pictures import picture
from longform_lab.records import Record, provenance, write_records
from longform_lab.report import Claim, Report, Section, write_report
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.shapes import Cell

NAME, PICTURE = "growth", "table1.png"
FITTED = 3  # of the longest lengths
STATED = {  # complexity of a layer, sequential operations; the paper's Table 1, or the architecture's own paper
    "recurrent": ("O(n)", "O(n)"),
    "unfused": ("O(n²)", "O(1)"),
    "sdpa": ("O(n²)", "O(1)"),
    **dict.fromkeys(("longformer", "bigbird", "nystromformer", "performer"), ("O(n), its own paper", "O(1)")),
    "reformer": ("O(n log n)", "O(log n)"),
    "ours-linear": ("O(n)", "O(1)"),
    "ours-window": ("O(n), k fixed", "O(1)"),
}
HEADS = [
    "architecture",
    "stated",
    "sequential operations",
    "time ~ n^",
    "memory ~ n^",
    "longest n",
    "its ms",
    "its MiB",
]


def reproduce_table1(scale: str, output: Path, **choices: Any) -> Report:
    """Measure what is lacking, and write records, picture, table and the report, which is returned.

    ``choices``: lengths and device, in place of the scale's. Raises ConfigurationError for fewer than two lengths.
    """
    cells, names = chosen_cells("table1", scale, **choices)
    if len(cells) < 2:
        raise ConfigurationError("an exponent needs two lengths or more (--lengths)")
    open_grid(output, "table1", scale, cells)
    found = _by_architecture(measured_cells(cells, names, scale, output))
    records = [_record(name, rows, cells) for name, rows in found.items()]
    table = Table(HEADS, growth_rows(list(map(vars, records))))
    _draw(found, cells[0], output / PICTURE)
    lead = [
        "How time and memory of a forward pass grow with the length of a text, measured, beside what the paper's "
        f"Table 1 (or the architecture's own paper) states for a layer: {described(cells[0])}, k = "
        f"{cells[-1].slots} for Linformer. The exponent is the slope of log(time) against log(n) over the "
        f"{min(FITTED, len(cells))} longest texts: 1 is linear, 2 quadratic. A pass has parts that are linear "
        "whatever the attention (feed-forward, projections), so that a quadratic architecture's exponent is below 2 "
        "until attention outweighs them, and a linear one's may be below 1 while there are costs that do not grow."
    ]
    notes = [
        "Sparse Transformer, which the paper lists with O(n√n), has no implementation to run here; Longformer and "
        "BigBird are its successors."
    ]
    for name, rows in found.items():
        missing = [f"n = {one.settings['length']:,}: {why}" for one in rows if (why := one.metrics.get("missing"))]
        notes += [f"{_label(name)}: {'; '.join(missing)}."] if missing else []
    pictures = [(PICTURE, "seconds and memory of a pass against tokens of a text, both logarithmic")]
    results = Section("Results", table, pictures)
    report = Report(
        "Table 1: growth with length", lead, [results], notes, claims(records), provenance(list(map(vars, records)))
    )
    write_records(output / "records.jsonl", records)
    write_report(output, report)
    return report


def claims(records: Sequence[Record]) -> list[Claim]:
    """The two rows that the paper's argument is about."""
    growth = {one.settings["architecture"]: one.metrics["time_exponent"] for one in records}
    said = (("unfused", "Transformer: O(n²)", 1.5, 9.0), ("ours-linear", "Linformer: O(n)", 0.0, 1.15))
    return [
        Claim(paper, f"time ~ n^{found:.2f}", low <= found <= high)
        for name, paper, low, high in said
        if isinstance(found := growth.get(name), float)
    ]


def exponent(points: Mapping[int, float]) -> float | None:
    """Least-squares slope of log(value) against log(n) over the longest lengths; None for fewer than two."""
    kept = [(math.log(n), math.log(value)) for n, value in sorted(points.items()) if value > 0][-FITTED:]
    if len(kept) < 2:
        return None
    return statistics.linear_regression(*zip(*kept, strict=True)).slope


def _by_architecture(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by architecture, in the table's order."""
    found = {name: [record for record in records if record.settings["competitor"] == name] for name in STATED}
    return {name: rows for name, rows in found.items() if rows}


def _label(name: str) -> str:
    return all_competitors()[name].label


def _record(name: str, rows: Sequence[Record], cells: Sequence[Cell]) -> Record:
    seconds, mib = by_length(rows, "seconds"), by_length(rows, "peak_mib")
    longest = max(seconds, default=None)
    metrics = {
        "time_exponent": exponent(seconds),
        "memory_exponent": exponent(mib),
        "seconds": None if longest is None else seconds[longest],
        "peak_mib": None if longest is None else mib.get(longest),
    }
    settings = {
        "architecture": name,
        "label": _label(name),
        "longest": longest,
        "slots": cells[-1].slots,
        "lengths": sorted(seconds)[-FITTED:],
        **common_settings(cells[0]),
    }
    return Record(name=NAME, metrics=metrics, settings=settings, units={"seconds": "s", "peak_mib": "MiB"})


def growth_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table, a row an architecture."""
    cells = []
    for row in rows:
        settings, metrics = row["settings"], row["metrics"]
        stated, sequential = STATED.get(settings["architecture"], ("–", "–"))
        longest = settings["longest"]
        cells.append(
            [
                settings["label"],
                stated,
                sequential,
                _shown(metrics["time_exponent"], ".2f"),
                _shown(metrics["memory_exponent"], ".2f"),
                "–" if longest is None else f"{longest:,}",
                _shown(metrics["seconds"], ",.0f", 1_000),
                _shown(metrics["peak_mib"], ",.0f"),
            ]
        )
    return cells


def _shown(value: float | None, form: str, factor: float = 1) -> str:
    return "–" if value is None else format(factor * value, form)


def _draw(found: Mapping[str, Sequence[Record]], cell: Cell, path: Path) -> None:
    colours = {"unfused": "black", "sdpa": "dimgray", "ours-linear": "tab:blue", "ours-window": "tab:cyan"}
    others = iter(("tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive"))
    markers = iter("os^Dv<>pPX")
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2, "frameon": False}
    with picture(path, 13.0, 6.6, 1, 2) as (left, right):
        for name, rows in found.items():
            colour, marker = colours.get(name) or next(others), next(markers)
            for axes, metric in ((left, "seconds"), (right, "peak_mib")):
                points = by_length(rows, metric)
                slope = exponent(points)
                label = _label(name) if slope is None else f"{_label(name)}: n^{slope:.2f}"
                plot_by_length(axes, points, color=colour, marker=marker, label=label)
        title = f"Time; the exponent of the {FITTED} longest\n{described(cell)}"
        finish_axes(left, title, "seconds of a pass (logarithmic)", **below)
        finish_axes(right, "Memory of a pass", "memory above the loaded model, MiB (logarithmic)", **below)
