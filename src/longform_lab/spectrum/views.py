"""Outputs that are made from measured spectra at any time: pictures, k for ``longform convert``, records."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.files import write_json, write_lines
from longform_lab.spectrum.choose import head_k_at_total, k_at_total, kept_share, smallest_slots
from longform_lab.spectrum.plots import plot_comparison, plot_curves, plot_heat_map, plot_similarity
from longform_lab.spectrum.results import RunResult
from longform_lab.spectrum.settings import SpectrumView

PLOTS, CHOSEN, RECORDS = Path("plots"), "projected_length", "records.jsonl"
COMPARISON = PLOTS / "comparison.png"


def plot_path(result: RunResult, kind: str) -> Path:
    """Where a picture is in the folder: "curves", "heat_map" or "similarity"."""
    return PLOTS / f"{result.name}-{kind}.png"


def draw(results: Sequence[RunResult], view: SpectrumView, output: Path) -> None:
    """Pictures of every run, and of several side by side."""
    for result in results:
        plot_curves(result, view.indices[0], output / plot_path(result, "curves"))
        plot_heat_map(result, view.indices[0], output / plot_path(result, "heat_map"))
        if result.similarity is not None:
            plot_similarity(result, result.similarity, output / plot_path(result, "similarity"))
    if len(results) > 1:
        plot_comparison(results, view.indices[0], output / COMPARISON)


def chosen_per_layer(result: RunResult, view: SpectrumView) -> dict[str, list[int]]:
    """Chosen k of each layer, by how it was chosen."""
    curves = result.spectrum.cumulative.mean(1)
    found = {f"k that keeps {view.keep:.0%}": smallest_slots(curves, view.keep, pooled=view.pooled).tolist()}
    if view.total_k is not None:
        found[f"k, {view.total_k} in all"] = k_at_total(curves, view.total_k, pooled=view.pooled)
    return found


def write_chosen(result: RunResult, view: SpectrumView, output: Path) -> None:
    """The files that ``longform convert --projected-length FILE`` takes: per layer, per head, and at a given total."""
    cumulative = result.spectrum.cumulative
    curves = cumulative.mean(1)
    layer, head = (smallest_slots(each, view.keep, pooled=view.pooled).tolist() for each in (curves, cumulative))
    files: dict[str, dict[str, Any]] = {
        "per-layer": {"projected_length": layer, "keep": view.keep, "kept": _rounded(kept_share(curves, layer))},
        "per-head": {"projected_length": head, "projection_sharing": "none", "keep": view.keep},
    }
    if view.total_k is not None:
        chosen = k_at_total(curves, view.total_k, pooled=view.pooled)
        files[f"total-{view.total_k}"] = {
            "projected_length": chosen,
            "total_k": view.total_k,
            "kept": _rounded(kept_share(curves, chosen)),
        }
        files[f"total-{view.total_k}-per-head"] = {
            "projected_length": head_k_at_total(cumulative, view.total_k, pooled=view.pooled),
            "projection_sharing": "none",
            "total_k": view.total_k,
        }
    for kind, content in files.items():
        about = {"max_length": cumulative.shape[-1], "pooled": view.pooled, "model": result.model}
        about |= {"corpus": result.corpus, "texts": result.spectrum.texts}
        write_json(output / CHOSEN / f"{result.name}-{kind}.json", {**content, **about})


def write_records(results: Sequence[RunResult], view: SpectrumView, settings: Mapping[str, Any], output: Path) -> None:
    """A line about every run (what of, settings, machine), then one a head: shares, effective rank, smallest k."""
    rows: list[dict[str, Any]] = []
    for result in results:
        about = {"model": result.model, "corpus": result.corpus, "texts": result.spectrum.texts}
        run = {"event": "run", **about, "seconds": round(result.seconds, 1), "subject": result.subject}
        rows += [{**run, "settings": dict(settings), **result.facts}, *_head_records(result, view)]
    write_lines(output / RECORDS, rows)


def _head_records(result: RunResult, view: SpectrumView) -> Iterator[dict[str, Any]]:
    spectrum = result.spectrum
    chosen = smallest_slots(spectrum.cumulative, view.keep, pooled=view.pooled).tolist()
    for layer, curves in enumerate(spectrum.cumulative):
        for head, curve in enumerate(curves.tolist()):
            deviation = spectrum.deviation[layer, head].tolist()
            yield {
                "event": "head",
                "model": result.model,
                "corpus": result.corpus,
                "texts": spectrum.texts,
                "layer": layer,
                "head": head,
                "share": {str(index): round(curve[index - 1], 6) for index in view.indices},
                "share_deviation": {str(index): round(deviation[index - 1], 6) for index in view.indices},
                "effective_rank": round(float(spectrum.effective_rank[layer, head]), 3),
                "keep": view.keep,
                "k": chosen[layer][head],
            }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]
