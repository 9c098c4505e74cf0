"""The report of ``longform bound``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longform.runs.page import Table
from longform_lab.bounds.compression_error import BEST, ErrorRow
from longform_lab.bounds.monte_carlo import EVENTS, Cell
from longform_lab.bounds.plots import STYLES, draw_bound
from longform_lab.bounds.results import BoundResult
from longform_lab.bounds.settings import BoundSettings
from longform_lab.bounds.theorems import smallest_useful_length
from longform_lab.report import Report, Section, listed, write_report

LEAD = [
    "Random projections R (k × n, independent N(0, 1/k)) keep inner products: |x RᵀR y - x y| ≤ ε ‖x‖ ‖y‖ but "
    "for a probability of 2 exp(-(ε² - ε³)k/4). Theorem 1 puts P RᵀR in the place of P and takes the union over n "
    "rows; Theorem 2 looks for E and F inside the softmax. Natural logarithms, the paper's constants. ε² - ε³ is "
    "largest at ε = 2/3, so that a coarser ε asks for more slots again, and k is never below 33.75 ln(n)."
]
SAID = {
    "row": "one row, one column",
    "map": "any of n rows, one column (Theorem 1)",
    "all": "any of n rows, any of d columns (Theorem 2's union)",
    "vector": "one row, the d columns together",
    "construction": "the same with softmax, E = δR and F = exp(-δ)R (Theorem 2 as constructed)",
    "literal": "Theorem 1 as printed, relative to ‖P w‖",
}


def report_bounds(result: BoundResult, settings: BoundSettings, facts: Mapping[str, Any], output: Path) -> None:
    """Draw the pictures and write the report into ``output``."""
    failures, error = draw_bound(result, output)
    sections = [_promises(result, settings), _trials(result, failures)]
    if error is not None:
        sections.append(Section("Error against k", pictures=[error], text=[_errors_lead(result, settings)]))
        sections += _errors_tables(result)
    foot = f"Settings and machine: {listed({**asdict(settings), **facts})}."
    write_report(output, Report("What do the theorems promise, and what happens?", LEAD, sections, foot=foot))


def _promises(result: BoundResult, settings: BoundSettings) -> Section:
    useful = "; ".join(f"ε = {e}: n ≥ {smallest_useful_length(e):,}" for e in settings.epsilon)
    rows = [
        [
            row.form,
            row.vacuous or "no",
            f"{row.length:,}",
            f"{row.head_size}",
            f"{row.epsilon:g}",
            f"{row.k:,}",
            "none given" if row.failure is None else f"{row.failure:.3g}",
        ]
        for row in result.guarantees
    ]
    table = Table(["form", "is it vacuous?", "n", "d", "ε", "k", "bound on failing"], rows, 2)
    return Section("k", table, text=[f"Theorem 1 has k below n and a bound below 1 from: {useful}."])


def _trials(result: BoundResult, failures: Sequence[tuple[str, str]]) -> Section:
    proved, printed = result.judged(), result.judged(("construction",))
    sources = dict.fromkeys(cell.source for cell in result.cells)
    heads = [
        "what fails",
        "maps",
        "cells with a bound below 1",
        "of them above it",
        "highest share / bound",
        "highest share that fails",
    ]
    said = [
        f"{len(proved) - len(result.broken()):,} of {len(proved):,} cells (maps × n × k × ε × event) "
        "with a bound below 1 keep it, for what the lemma proves: rows, maps, all, and rows of all columns together. "
        f"Theorem 2's construction as printed keeps it in {len(printed) - len(result.broken(('construction',))):,} of "
        f"{len(printed):,}: with δ = 1/n the logits δ a Rᵀ are nearly 0, softmax(a Eᵀ) is nearly 1/k everywhere, and "
        "softmax(a Eᵀ) F V is nearly the mean of k random rows, whatever a is. It passes where p V is small beside "
        "ε ‖p‖ ‖V‖, as for random values, and fails where it is not. The theorem claims that some E and F exist; this "
        "pair is not it. Theorem 1 as printed, relative to ‖P w‖, has no such bound: p w may be 0.",
        "“random”: logits and values N(0, 1). “aligned”: single rows of P, which all columns of the values are "
        "too, and no pair of vectors is harder. Layers: attention of the model. A share of 0 is drawn at the "
        "bottom.",
    ]
    rows = [_event_row(event, source, result.cells) for event in EVENTS for source in sources]
    return Section("Trials", Table(heads, rows, 2), failures, said)


def _event_row(event: str, source: str, cells: list[Cell]) -> list[str]:
    here = [cell for cell in cells if cell.event == event and cell.source == source]
    judged = [cell for cell in here if cell.says_something]
    ratios = [cell.failure / cell.bound for cell in judged if cell.bound]
    counts = ["no bound", "–"]
    if EVENTS[event]:
        counts = [str(len(judged)), str(sum(cell.broken for cell in judged))]
    worst = f"{max(ratios):.3g}" if ratios else "–"
    return [SAID[event], source, *counts, worst, f"{max(cell.failure for cell in here):.3g}"]


def _errors_lead(result: BoundResult, settings: BoundSettings) -> str:
    closest = result.closest_to_best() or 0.0
    verdict = "lowest in every map, at every k" if closest >= 0 else f"NOT lowest: beaten by {-closest:.2g}"
    return (
        f"{result.model} on {result.texts}: relative Frobenius "
        f"errors on {settings.held_out_texts} texts that nothing was fitted to; E and F (free k × n matrices, one pair "
        f"a head) and the convolution (one kernel a head) were fitted to {settings.fit_texts} others by "
        f"{settings.fit_steps} steps of gradient descent, once for each of the two errors. The SVD's map error is the "
        f"{verdict} (the nearest other map is {closest:.2g} above). Theorem 1's P RᵀR has an expected squared map "
        "error of (n + 1)/k: below k = n it is further from P than a map of zeros is, and only products with few, "
        "fixed vectors are kept. For the output the SVD is not optimal: P V has d columns, so that a map of rank d "
        "could have no error at all."
    )


def _errors_tables(result: BoundResult) -> Iterator[Section]:
    ks = sorted({row.k for row in result.errors})
    for error in ("map", "output"):
        rows = []
        for layer in sorted({row.layer for row in result.errors}):
            for method in STYLES:
                found = {
                    row.k: row
                    for row in result.errors
                    if (row.layer, row.method) == (layer, method) and row.fitted_to in (None, error)
                }
                rows.append([f"layer {layer + 1}", method, *(_error_cell(found[k], error) for k in ks)])
        table = Table(["", "method", *(f"k = {k}" for k in ks)], rows, 2)
        yield Section(f"Error of the {error} (on the texts fitted to)", table)


def _error_cell(row: ErrorRow, error: str) -> str:
    seen, value = getattr(row, f"seen_{error}_error"), getattr(row, f"{error}_error")
    said = f"{value:.3f}" if row.method != BEST or value >= 1e-3 else f"{value:.1e}"
    return said if seen is None else f"{said} ({seen:.3f})"
