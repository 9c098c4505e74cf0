"""The paper's Tables 1 and 3 and Figure 2 on the grid of the benchmark: growth with length, beside full attention."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from longform.errors import ConfigurationError
from longform.files import open_run_folder
from longform.pretrained.model_card import Table
from longform_lab.records import Record, provenance
from longform_lab.report import Claim, Report, Section, write_report
from longform_lab.speed.cells import Effort
from longform_lab.speed.competitors import all_competitors, chosen_competitors
from longform_lab.speed.grid import run_grid
from longform_lab.speed.paper_table import paper_rows
from longform_lab.speed.report import DASH, READING, paper_table, series_sections
from longform_lab.speed.selection import Selection, cells_of, chosen_threads, with_choices
from longform_lab.speed.shapes import Cell
from longform_text.inference.loading import pick_device

RIVALS = ("ours-linear", "sdpa", "unfused")
ARCHITECTURES = (*RIVALS, "longformer", "bigbird", "nystromformer", "recurrent", "ours-window")
LENGTHS = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
SLOTS = (128, 256, 512, 1_024, 2_048)
SELECTIONS = {
    ("table3", "tiny"): Selection(lengths=(128, 256), sizes=("tiny",), slots=(64,), competitors=RIVALS),
    ("table1", "tiny"): Selection(lengths=(128, 256), sizes=("tiny",), slots=(64,), competitors=(*RIVALS, "recurrent")),
    ("table3", "small"): Selection(lengths=LENGTHS[:4], sizes=("base",), slots=SLOTS, competitors=RIVALS),
    ("table3", "paper"): Selection(lengths=LENGTHS, sizes=("base",), slots=SLOTS, competitors=RIVALS),
    ("table1", "small"): Selection(lengths=LENGTHS[:5], competitors=ARCHITECTURES),
    ("table1", "paper"): Selection(lengths=LENGTHS, sizes=("base",), competitors=ARCHITECTURES),
}
EFFORTS = {
    "tiny": Effort(repeats=1, cell_seconds=20.0),
    "small": Effort(repeats=3, cell_seconds=60.0),
    "paper": Effort(),
}
FITTED = 3  # of the longest lengths
STATED = {  # complexity of a layer, sequential operations; the paper's Table 1, or the architecture's own paper
    "recurrent": ("O(n)", "O(n)"),
    "unfused": ("O(n²)", "O(1)"),
    "sdpa": ("O(n²)", "O(1)"),
    **dict.fromkeys(("longformer", "bigbird", "nystromformer"), ("O(n), its own paper", "O(1)")),
    "ours-linear": ("O(n)", "O(1)"),
    "ours-window": ("O(n), k fixed", "O(1)"),
}
TITLES = {
    "table1": "Table 1: growth with length",
    "table3": "Table 3 and Figure 2: time and memory of inference",
}
LEADS = {
    "table1": "How time and memory of a forward pass grow with the length of a text, beside what the paper's Table 1 "
    f"states for a layer. An exponent is the slope of log(time) against log(n) over the {FITTED} longest texts: 1 is "
    "linear, 2 quadratic. A pass has parts that are linear whatever the attention (feed-forward, projections), so that "
    "a quadratic architecture's exponent is below 2 until attention outweighs them.",
    "table3": "How many times less a pass of Linformer takes (learned E, layerwise sharing) than full attention. "
    "The paper measured on a 16 GB V100 against unfused attention. Memory is the paper's sense of it: the ratio of the "
    "largest batches that 16 GiB hold besides the weights, estimated from the measured peak of a pass. k above n/2 is "
    "not measured.",
}


def reproduce_grid(subject: str, scale: str, output: Path, *, lengths: Sequence[int], device: str) -> Report:
    """Measure what ``output`` lacks of "table1" or "table3", and write records, pictures and the page.

    ``lengths``: in place of the scale's. Raises ConfigurationError for values that do not exist, and for other
    settings in the folder.
    """
    cells, names = chosen_cells(subject, scale, lengths, device)
    common = {name: getattr(cells[0], name) for name in ("size", "dtype", "device", "threads")}
    sizes = {name: sorted({getattr(cell, name) for cell in cells}) for name in ("length", "slots")}
    identity = {"table": subject, "scale": scale, **sizes, **common}
    open_run_folder(output, "reproduce.json", identity, what="measurements")
    competitors = chosen_competitors(names)
    return report_grid(subject, run_grid(cells, competitors, EFFORTS[scale], output=output), output)


def chosen_cells(
    subject: str, scale: str, lengths: Sequence[int] = (), device: str = "auto"
) -> tuple[list[Cell], tuple[str, ...]]:
    """The cells and their competitors. Raises ConfigurationError for lengths of which nothing can be said."""
    if any(length < 2 for length in lengths):
        raise ConfigurationError(f"lengths={list(lengths)}: each is 2 tokens or more")
    chosen = with_choices(SELECTIONS[subject, scale], lengths=list(lengths))
    cells = cells_of(chosen, device=pick_device(device).type, threads=chosen_threads(None))
    if subject == "table1" and len(cells) < 2:
        raise ConfigurationError("an exponent needs two lengths or more (--lengths)")
    if subject == "table3":
        cells = [cell for cell in cells if cell.slots in chosen.slots and 2 * cell.slots <= cell.length]
        if not cells:
            wanted = f"slots={list(chosen.slots)} for lengths={list(chosen.lengths)}"
            raise ConfigurationError(f"{wanted}: k above n/2 is not measured, and none is as small")
    return cells, chosen.competitors


def report_grid(subject: str, records: Sequence[Record], output: Path) -> Report:
    """Write the pictures and the page of ``records`` into ``output``."""
    if subject == "table1":
        table, claims = growth_table(records), growth_claims(records)
    else:
        table, claims = paper_table(records), ratio_claims(records)
    sections = [Section("Results", table), *series_sections(records, all_competitors(), output)]
    foot = provenance(list(map(vars, records)))
    report = Report(TITLES[subject], [LEADS[subject], READING], sections, claims=claims, foot=foot)
    write_report(output, report)
    return report


def by_length(records: Sequence[Record], competitor: str, metric: str) -> dict[int, float]:
    """n -> the lowest of a metric that the competitor's records have, shortest texts first."""
    found: dict[int, float] = {}
    for record in records:
        n, value = record.settings["length"], record.metrics.get(metric)
        if record.settings["competitor"] == competitor and isinstance(value, int | float):
            found[n] = min(float(value), found.get(n, math.inf))
    return dict(sorted(found.items()))


def exponent(points: Mapping[int, float]) -> float | None:
    """Least-squares slope of log(value) against log(n) over the longest lengths; None for fewer than two."""
    kept = [(math.log(n), math.log(value)) for n, value in sorted(points.items()) if value > 0][-FITTED:]
    if len(kept) < 2:
        return None
    return statistics.linear_regression(*zip(*kept, strict=True)).slope


def growth_table(records: Sequence[Record]) -> Table:
    """A row an architecture: what is stated of it, and the exponents of time and memory."""
    rows = []
    for name in STATED:
        seconds, mib = (by_length(records, name, metric) for metric in ("seconds", "peak_mib"))
        if any(record.settings["competitor"] == name for record in records):
            slopes = (DASH if slope is None else f"{slope:.2f}" for slope in map(exponent, (seconds, mib)))
            longest = f"{max(seconds):,}" if seconds else DASH
            rows.append([all_competitors()[name].label, *STATED[name], *slopes, longest])
    return Table(["architecture", "stated", "sequential operations", "time ~ n^", "memory ~ n^", "longest n"], rows)


def growth_claims(records: Sequence[Record]) -> list[Claim]:
    """The two rows that the paper's argument is about."""
    stated = {"unfused": ("Transformer: O(n²)", 1.5, 9.0), "ours-linear": ("Linformer: O(n)", 0.0, 1.15)}
    claims = []
    for name, (paper, low, high) in stated.items():
        slope = exponent(by_length(records, name, "seconds"))
        if slope is not None:
            claims.append(Claim(paper, f"time ~ n^{slope:.2f}", low <= slope <= high))
    return claims


def ratio_claims(records: Sequence[Record]) -> list[Claim]:
    """How many of the paper's values are reached, of those that were measured."""
    claims = []
    for what, times in (("time", "times as fast"), ("memory", "times the batch")):
        both = [(row[what], row[f"paper_{what}"]) for row in paper_rows(records) if row[what] is not None]
        if both:
            met = sum(here >= paper for here, paper in both)
            ours, theirs = zip(*both, strict=True)
            here = f"{min(ours):.1f} to {max(ours):.1f}; {met} of {len(both)} cells reach the paper's"
            claims.append(Claim(f"{min(theirs):g} to {max(theirs):g} {times}", here, met == len(both)))
    return claims
