"""What ``longform spectrum`` and ``longform bound`` found, as records and as pictures of the documents.

    python -m longform_lab.experiments.spectrum_findings spectrum runs/spectrum
    python -m longform_lab.experiments.spectrum_findings bound runs/bound
    python -m longform_lab.experiments.spectrum_findings choices

Records go to benchmarks/records/{spectrum_layers,head_sharing,bound_trials,bound_errors}.jsonl, pictures to
docs/pictures. ``choices`` draws the records of ``longform_lab.experiments.spectrum_k choices``.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longform.runs.pictures import new_figure, save_figure
from longform.spectrum.singular_values import smallest_index
from longform_lab.bounds.compression_error import ErrorRow
from longform_lab.bounds.monte_carlo import EVENTS, Cell
from longform_lab.bounds.results import PROVED, read_part
from longform_lab.records import RECORDS, ROOT, Record, append_record, read_records
from longform_lab.spectrum.heads import inside_and_across
from longform_lab.spectrum.results import RunResult, read_result

PICTURES = ROOT / "docs" / "pictures"
INDICES = (64, 128, 256)
KEPT = 0.9
FROM_SPECTRUM = ("curves", "heat_map", "similarity", "sharing")
FROM_BOUND = ("failures-512", "error")
PANELS = {
    ("mean", 128): "mean projection, 6 x 128 slots", ("linear", 128): "learned E as it starts, 6 x 128 slots",
    ("best of rank k", 32): "best maps of rank k, 6 x 32",
}  # fmt: skip
STYLES = {
    "the same everywhere": ("black", "-"), "spectrum, per layer": ("tab:blue", "-"),
    "spectrum, layers reversed": ("tab:gray", ":"), "spectrum, per head": ("tab:orange", "--"),
    "least error of a layer": ("tab:green", "-"),
}  # fmt: skip


def layer_records(run: RunResult) -> Iterator[Record]:
    """A record a layer: shares, effective rank, k for 90 %, and how alike its heads are."""
    spectrum = run.spectrum
    assert run.heads is not None
    inside, _ = inside_and_across(run.heads.similarity, spectrum.effective_rank.shape[1])
    needed = smallest_index(spectrum.cumulative.mean(1), KEPT).tolist()
    for layer, curves in enumerate(spectrum.cumulative):
        at = curves[:, 127]
        yield Record(
            name="spectrum_layers",
            settings={**_about(run), "layer": layer + 1},
            metrics={
                **{f"share_{index}": float(curves[:, index - 1].mean()) for index in INDICES},
                "lowest_head": float(at.min()), "highest_head": float(at.max()),
                "effective_rank": float(spectrum.effective_rank[layer].mean()), "k_90": needed[layer],
                "alike": float(inside[layer]),
            },
        )  # fmt: skip


def sharing_records(run: RunResult) -> Iterator[Record]:
    """A record for each way to choose who follows whom, and each number of followers."""
    assert run.heads is not None
    for row in run.heads.fidelity:
        settings = {**_about(run), "texts": run.heads.tried, "pairs": row["pairs"], "replaced": row["replaced"]}
        metrics = {name: row[name] for name in ("share", "cosine", "error")}
        yield Record(name="head_sharing", settings=settings, metrics=metrics)


def _about(run: RunResult) -> dict[str, Any]:
    spectrum = run.spectrum
    return {"model": run.model, "corpus": run.corpus, "texts": spectrum.texts, "tokens": spectrum.longest}


def trial_records(cells: Sequence[Cell], about: Mapping[str, Any]) -> Iterator[Record]:
    """A record for each kind of failure on made maps and on the model's."""
    for event, pairs in EVENTS.items():
        for maps in ("made", "captured"):
            here = [
                cell for cell in cells if cell.event == event and cell.source.startswith("layer") == (maps != "made")
            ]
            judged = [cell for cell in here if cell.says_something]
            seen = [cell for cell in judged if cell.failure > 0]
            ratios = [cell.failure / cell.bound for cell in judged if cell.bound]
            yield Record(
                name="bound_trials",
                settings={**about, "event": event, "maps": maps, "proved": event in PROVED},
                metrics={
                    "cells": len(here), "judged": None if pairs is None else len(judged), "failing": len(seen),
                    "broken": None if pairs is None else sum(cell.broken for cell in judged),
                    "highest_ratio": max(ratios, default=None),
                },
            )  # fmt: skip


def error_records(rows: Sequence[ErrorRow], about: Mapping[str, Any]) -> Iterator[Record]:
    """A record for each method, layer and k; fitted ones with the error that they were fitted to."""
    methods = dict.fromkeys((row.method, row.layer, row.k) for row in rows)
    for method, layer, k in methods:
        here = [row for row in rows if (row.method, row.layer, row.k) == (method, layer, k)]
        of = {error: next(row for row in here if row.fitted_to in (None, error)) for error in ("map", "output")}
        yield Record(
            name="bound_errors",
            settings={**about, "method": method, "layer": layer + 1, "k": k, "length": here[0].length},
            metrics={
                "map_error": of["map"].map_error, "output_error": of["output"].output_error,
                "above_best": min(row.above_best for row in here),
            },
        )  # fmt: skip


def append_all(records: Iterable[Record]) -> None:
    """Append each to the file of its name, and print it."""
    for record in records:
        append_record(RECORDS / f"{record.name}.jsonl", record)
        print(record.name, record.settings, record.metrics)


def spectrum(folder: Path) -> None:
    """Records and pictures of the first run in a folder of ``longform spectrum``."""
    path = sorted((folder / "runs").glob("*.jsonl"))[0]
    run = read_result(path)
    append_all([*layer_records(run), *sharing_records(run)])
    PICTURES.mkdir(exist_ok=True)
    for kind in FROM_SPECTRUM:
        shutil.copyfile(folder / "plots" / f"{path.stem}-{kind}.png", PICTURES / f"spectrum-{kind}.png")


def bound(folder: Path) -> None:
    """Records and pictures of a folder of ``longform bound``."""
    with (folder / "records.jsonl").open(encoding="utf-8") as file:
        run = json.loads(file.readline())
    chosen = run["settings"]
    about = {"model": run["model"], "texts": run["texts"]}
    cells = [cell for path in sorted((folder / "parts").glob("trials-*")) for cell in read_part(path, Cell)]
    errors = [row for path in sorted((folder / "parts").glob("error-*")) for row in read_part(path, ErrorRow)]
    tried = {name: chosen[name] for name in ("length", "epsilon", "trials", "trial_texts")}
    fitted = {name: chosen[name] for name in ("fit_texts", "held_out_texts", "fit_steps")}
    append_all([*trial_records(cells, {**about, **tried}), *error_records(errors, {**about, **fitted})])
    PICTURES.mkdir(exist_ok=True)
    for kind in FROM_BOUND:
        shutil.copyfile(folder / "plots" / f"{kind}.png", PICTURES / f"bound-{kind}.png")


def choices() -> None:
    """k of each layer for every way to share a total out, with the cosine that it gives."""
    latest: dict[str, dict[str, Any]] = {}
    for record in read_records([RECORDS / "spectrum_k.jsonl"]):
        latest[json.dumps(record.settings, sort_keys=True)] = asdict(record)
    figure = new_figure(1.2 + 4.2 * len(PANELS), 5.8)
    panels = figure.subplots(1, len(PANELS), squeeze=False)[0]
    for axes, ((projection, uniform), title) in zip(panels, PANELS.items(), strict=True):
        wanted = {"projection": projection, "uniform": uniform, "sinks": 0}
        rows = [row for row in latest.values() if wanted.items() <= row["settings"].items()]
        for row in sorted(rows, key=lambda row: -row["metrics"]["cosine"]):
            ks = [float(k) for k in row["metrics"]["k"].split(", ")]
            colour, style = STYLES[row["settings"]["choice"]]
            label = f"{row['metrics']['cosine']:.3f}  {row['settings']['choice']}"
            axes.plot(range(1, len(ks) + 1), ks, marker="o", color=colour, linestyle=style, label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("layer")
        axes.set_ylim(0, None)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, title="cosine to the original", loc="upper center", bbox_to_anchor=(0.5, -0.14))
    panels[0].set_ylabel("k (mean over heads)")
    figure.suptitle("The same number of slots, shared out among layers and heads in different ways", fontsize=11)
    PICTURES.mkdir(exist_ok=True)
    save_figure(figure, PICTURES / "spectrum-choices.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Append the records of a folder and copy its pictures, or draw those of ``choices``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["spectrum", "bound", "choices"])
    parser.add_argument("folder", type=Path, nargs="?", help="output of the command of that name")
    options = parser.parse_args(arguments)
    if options.command == "choices":
        choices()
    elif options.folder is None:
        parser.error("which folder did the command write?")
    else:
        {"spectrum": spectrum, "bound": bound}[options.command](options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
