"""The files that a part of Figure 3 writes: records, curves, the picture, the table and the page."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from longform.pretrained.model_card import Table
from longform_lab.paper.figure3_plan import FIGURES, Plan
from longform_lab.paper.figure3_plots import draw_figure3
from longform_lab.paper.parts import Finished
from longform_lab.records import Record, provenance, write_records
from longform_lab.report import Claim, Report, Section, mean_and_spread, write_report

PICTURE = "figure3.png"
NEARLY, ALIKE = 1.05, 1.02  # how much larger a loss may be
LEARNED = 1.0  # nats below predicting frequencies, from which on attention has had something to do
NOTES = [
    "Below frequencies, below bigrams: how far the worst seed ends below predicting token frequencies alone, and below "
    "predicting each token from the one before it, by counts in the training text.",
    "± is the sample standard deviation over seeds. Loss / twin's compares with full attention of the same n and seed, "
    "training by training. Minutes: wall-clock, of one training, with its measurements.",
]
HEADS = [
    "model",
    "n",
    "k",
    "parameters",
    "validation loss, nats",
    "perplexity",
    "below frequencies, nats",
    "below bigrams, nats",
    "loss / twin's",
    "seeds",
    "minutes",
]


def report_figure3(plan: Plan, seeds: Sequence[int], finished: Sequence[Finished], output: Path) -> None:
    """Write all of it from the trainings that are finished."""
    draw_figure3(plan, finished, output / PICTURE)
    write_records(output / "records.jsonl", [with_curve(one) for one in finished])
    write_report(output, page_of_figure3(plan, seeds, finished))


def page_of_figure3(plan: Plan, seeds: Sequence[int], finished: Sequence[Finished]) -> Report:
    """The page, of the trainings that are finished."""
    rows = [one.row for one in finished]
    training, tokenizer = plan.preset.training, plan.preset.tokenizer
    size = {name: plan.preset.model.get(name, "?") for name in ("num_hidden_layers", "hidden_size")}
    lead = [
        f"{plan.figure.capitalize().replace('3', ' 3')} of Linformer (arXiv 2006.04768): {FIGURES[plan.figure]}. "
        f"{size['num_hidden_layers']} layers of width {size['hidden_size']}, vocabulary {tokenizer.vocab_size:,}, "
        f"{training.tokens_per_step:,} tokens a step. All models of a seed begin with the same weights wherever both "
        "have some; models of the same n see the same batches with the same tokens hidden. Loss is that of a fixed "
        "set of hidden tokens in held-out documents.",
        f"{len(finished)} of {len(plan.curves) * len(seeds)} trainings are finished.",
    ]
    if plan.twin is not None:
        begun = (
            f"All begin with the weights of full attention of n = {plan.curves[0].length:,} that had learned for "
            f"{plan.twin.argument('max_steps'):,} steps; its positions are tiled for longer texts, E and F are block "
            "means. Step 0 is what that is worth before any training."
        )
        lead.insert(1, begun)
    picture = (PICTURE, "validation perplexity against updates, a line a model")
    return Report(
        f"{plan.figure.capitalize()}: {FIGURES[plan.figure]}",
        lead,
        [
            Section("Results", Table(HEADS, final_values(rows)), [picture]),
        ],
        NOTES,
        claims(plan.figure, rows),
        provenance([vars(one.record) for one in finished]),
    )


def claims(figure: str, rows: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Claims of the paper about its figure, beside what ``rows`` have of it.

    Models of which one ends near predicting frequencies, or above it, cannot tell: there was nothing to lose.
    """
    found = _claims(figure, rows)
    if _least_gap(rows) >= LEARNED:
        return found
    said = "; too near predicting frequencies to tell"
    return [claim._replace(here=claim.here + said, agrees=None) for claim in found]


def _least_gap(rows: Sequence[Mapping[str, Any]]) -> float:
    """How far the worst training ends below predicting frequencies, nats."""
    return _least_below("unigram_loss", [row["metrics"] for row in rows])


def _on_par(figure: str, rows: Sequence[Mapping[str, Any]], linear: Mapping[str, Mapping[str, Any]]) -> Iterator[Claim]:
    said = "n = 512, k = 128" if figure == "figure3a" else "n = 1,024, k = 256"
    for curve, found in linear.items():
        ratios = ratios_to_twin(rows)[curve]
        if 4 * found["k"] == found["n"] and ratios:
            here = f"n = {found['n']:,}, k = {found['k']:,}: {fmean(ratios):.3f} of its loss"
            yield Claim(f"{said}: nearly on par with full attention", here, fmean(ratios) <= NEARLY)


def _alike(shared: Mapping[str, float]) -> list[Claim]:
    """The claim about sharing, of the losses by kind of sharing."""
    if not {"none", "layerwise"} <= shared.keys():
        return []
    ratio = shared["layerwise"] / shared["none"]
    return [Claim("layerwise sharing almost matches no sharing", f"{ratio:.3f} of its loss", ratio <= ALIKE)]


def _claims(figure: str, rows: Sequence[Mapping[str, Any]]) -> list[Claim]:
    mean = {curve: fmean([row["metrics"]["loss"] for row in seeds.values()]) for curve, seeds in by_curve(rows).items()}
    settings = {curve: next(iter(seeds.values()))["settings"] for curve, seeds in by_curve(rows).items()}
    linear = {curve: found for curve, found in settings.items() if found.get("projection") == "linear"}
    if figure in ("figure3a", "figure3b"):
        return list(_on_par(figure, rows, linear))
    if figure == "figure3c":
        return _alike({found["sharing"]: mean[curve] for curve, found in linear.items()})
    losses = {found["n"]: mean[curve] for curve, found in linear.items()}
    if len(losses) < 2:
        return []
    apart = max(losses.values()) / min(losses.values())
    here = ", ".join(f"{loss:.3f} (n = {n:,})" for n, loss in sorted(losses.items()))
    return [Claim("at one k the final value is about the same for every n", f"losses {here}", apart <= ALIKE)]


def with_curve(one: Finished) -> Record:
    """The record with what was measured on the way: [step, validation loss] as ``curve`` among its metrics."""
    curve = [[row["step"], round(row["loss"], 4)] for row in one.kept]
    return replace(one.record, metrics={**one.record.metrics, "curve": curve})


def by_curve(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Curve -> seed -> row, in the order of the rows."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["settings"]["curve"], {})[row["settings"]["seed"]] = row
    return found


def ratios_to_twin(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Curve -> validation loss over that of the full-attention twin of the same n and seed; without a twin, none."""
    curves = by_curve(rows)
    found: dict[str, list[float]] = {}
    for curve, seeds in curves.items():
        length = next(iter(seeds.values()))["settings"]["n"]
        twin = curves.get(
            re.sub(r"\bn\d+-.*$", f"n{length}-full", curve), {}
        )  # what stands before n names the training
        found[curve] = [
            row["metrics"]["loss"] / twin[seed]["metrics"]["loss"] for seed, row in seeds.items() if seed in twin
        ]
    return found


def final_values(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table, a row a curve: mean ± sample standard deviation over seeds."""
    ratios, cells = ratios_to_twin(rows), []
    for curve, seeds in by_curve(rows).items():
        settings = next(iter(seeds.values()))["settings"]
        metrics = [row["metrics"] for row in seeds.values()]
        losses = [one["loss"] for one in metrics]
        cells.append(
            [
                settings["label"],
                f"{settings['n']:,}",
                "–" if settings["k"] is None else str(settings["k"]),
                f"{metrics[0]['parameters']:,}",
                mean_and_spread(losses, ".4f"),
                mean_and_spread([math.exp(loss) for loss in losses], ".2f"),
                below_or_above(_least_below("unigram_loss", metrics)),
                below_or_above(_least_below("bigram_loss", metrics)),
                _shown(ratios[curve], of_itself=curve.endswith("full")),
                str(len(losses)),
                f"{sum(one['seconds'] for one in metrics) / 60 / len(metrics):.1f}",
            ]
        )
    return cells


def _least_below(level: str, metrics: Sequence[Mapping[str, Any]]) -> float:
    """How far the worst training ends below ``level``, nats; NaN where one does not have it."""
    if any(one.get(level) is None for one in metrics):
        return math.nan
    return min(one[level] - one["loss"] for one in metrics)


def below_or_above(nats: float) -> str:
    """A distance below a level as it is read: one that is negative is above it; a dash for NaN."""
    return "–" if math.isnan(nats) else f"{nats:.2f}" if nats >= 0 else f"{-nats:.2f} above"


def _shown(ratios: Sequence[float], *, of_itself: bool) -> str:
    return "1" if of_itself else mean_and_spread(ratios, ".4f") if ratios else "–"
