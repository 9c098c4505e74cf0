"""The paper's Table 3 and Figure 2: time and largest batch of Linformer for every n and k, over full attention's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.page import Table
from longform_lab.paper.grid_scales import (
    by_length,
    chosen_cells,
    described,
    finish_axes,
    measured_cells,
    open_grid,
    plot_by_length,
)
from longform_lab.pictures import picture
from longform_lab.records import Record, provenance, write_records
from longform_lab.report import Claim, Report, Section, write_report
from longform_lab.speed.paper_table import MEMORY, TIME, published
from longform_lab.speed.shapes import Cell

PICTURE = "figure2.png"
OURS = "ours-linear"
BASELINES = {"unfused": "unfused attention, the paper's baseline", "sdpa": "fused attention (SDPA)"}
TURNS = "A time is the median over rounds in which all models of a cell take turns."
Point = tuple[int, int]  # n, k


def reproduce_table3(scale: str, output: Path, **choices: Any) -> Report:
    """Measure what is lacking, and write records, the pictures and the report, which is returned.

    ``choices``: lengths and device, in place of the scale's.
    """
    cells, names = chosen_cells("table3", scale, **choices)
    open_grid(output, "table3", scale, cells)
    records = measured_cells(cells, names, scale, output)
    tables = [
        (f"{said}, against {title}", ratio_table(records, what, baseline))
        for baseline, title in BASELINES.items()
        for said, what in (("Time", "time"), ("Largest batch", "memory"))
    ]
    draw_times(records, cells[0], output / PICTURE)
    drawn = (PICTURE, "seconds of a pass against tokens of a text, a line for each k and for full attention")
    lead = [
        "How many times less a forward pass of Linformer takes (learned E, layerwise sharing) than full attention: "
        f"{described(cells[0])}. In brackets the paper's, measured on a 16 GB V100 against unfused attention. Memory "
        "is the paper's sense of it: the ratio of the largest batches that 16 GiB hold beside the weights, reckoned "
        "from the measured peak of a pass above the loaded model, for each text."
    ]
    report = Report(
        "Table 3 and Figure 2: time and memory of inference",
        lead,
        [Section(tables[0][0], tables[0][1], [drawn]), *(Section(title, table) for title, table in tables[1:])],
        ["k above n/2 is not measured: such cells say so.", *missing_cells(records), TURNS],
        claims(records),
        provenance(list(map(vars, records))),
    )
    write_records(output / "records.jsonl", records)
    write_report(output, report)
    return report


def claims(records: Sequence[Record]) -> list[Claim]:
    """How many of the paper's values are reached, of those that were measured."""
    points = sorted({(record.settings["length"], record.settings["slots"]) for record in records})
    found = []
    for what, said, published_values in (("time", "times as fast", TIME), ("memory", "times the batch", MEMORY)):
        pairs = [(ratio(records, point, what, "unfused"), published(published_values, *point)) for point in points]
        both = [(here, paper) for here, paper in pairs if here is not None and paper is not None]
        if both:
            met = sum(here >= paper for here, paper in both)
            ours, theirs = zip(*both, strict=True)
            paper = f"{min(theirs):g} to {max(theirs):g} {said}"
            here = f"{min(ours):.1f} to {max(ours):.1f}"
            found.append(Claim(paper, f"{here}; {met} of {len(both)} cells reach the paper's", met == len(both)))
    return found


def ratio(records: Sequence[Record], point: Point, what: str, baseline: str) -> float | None:
    """Baseline's time over ours, or our largest batch over the baseline's; None where one was not measured."""
    found: dict[str, Mapping[str, Any]] = {
        record.settings["competitor"]: record.metrics
        for record in records
        if (record.settings["length"], record.settings["slots"]) == point
    }
    ours, other = found.get(OURS, {}), found.get(baseline, {})
    if what == "time":
        return ours.get(f"against_{baseline}")
    texts, others = ours.get("texts_in_16_gib"), other.get("texts_in_16_gib")
    return texts / others if texts and others else None


def _shown(ratio: float | None, nothing: str) -> str:
    """A ratio with three digits; ``nothing`` where there is none."""
    if ratio is None:
        return nothing
    return f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def ratio_table(records: Sequence[Record], what: str, baseline: str) -> Table:
    """A row for each n, a column for each k; the paper's value in brackets beside unfused attention.

    k above n/2 is not measured.
    """
    points = sorted({(record.settings["length"], record.settings["slots"]) for record in records})
    lengths, slots = sorted({n for n, _ in points}), sorted({k for _, k in points})
    rows = []
    for n in lengths:
        cells = []
        for k in slots:
            found = ratio(records, (n, k), what, baseline) if (n, k) in points else None
            paper = published(TIME if what == "time" else MEMORY, n, k) if baseline == "unfused" else None
            shown = _shown(found, "k above n/2" if 2 * k > n else "–")
            cells.append(shown if paper is None else f"{shown} ({paper:g}x)")
        rows.append([f"{n:,}", *cells])
    return Table(["n", *(f"k = {k:,}" for k in slots)], rows)


def missing_cells(records: Sequence[Record]) -> list[str]:
    """Why a cell has no value, a sentence each."""
    return [
        f"n = {record.settings['length']:,}, k = {record.settings['slots']:,}, {record.settings['competitor']}: "
        f"{record.metrics['missing']}."
        for record in records
        if record.metrics.get("missing")
    ]


def draw_times(records: Sequence[Record], cell: Cell, path: Path) -> None:
    """Left: seconds against n, a line a k. Right: times as fast as unfused attention."""
    slots = sorted({record.settings["slots"] for record in records})
    colours = ("tab:blue", "tab:cyan", "tab:green", "tab:olive", "tab:orange", "tab:red", "tab:purple")
    with picture(path, 13.0, 5.0, 1, 2) as (left, right):
        for name, label, line in (("unfused", "unfused attention", "--"), ("sdpa", "fused attention (SDPA)", "-")):
            theirs = [record for record in records if record.settings["competitor"] == name]
            plot_by_length(left, by_length(theirs, "seconds"), color="k", linestyle=line, label=label, marker="s")
        for place, k in enumerate(slots):
            ours = [one for one in records if (one.settings["slots"], one.settings["competitor"]) == (k, OURS)]
            style = {"marker": "o", "color": colours[place % len(colours)]}
            plot_by_length(left, by_length(ours, "seconds"), label=f"Linformer, k = {k:,}", **style)
            plot_by_length(right, by_length(ours, "against_unfused"), label=f"k = {k:,}", **style)
            plot_by_length(right, by_length(ours, "against_sdpa"), linestyle=":", **style)
        right.axhline(1, color="tab:gray", linewidth=1)
        up = "seconds of a forward pass (logarithmic)"
        finish_axes(left, f"Time against length\n{described(cell)}", up)
        title = "Solid: against unfused attention; dotted: against SDPA"
        finish_axes(right, title, "times as fast as full attention")
