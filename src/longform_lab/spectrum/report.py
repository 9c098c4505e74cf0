"""The report of the spectra, from the measured results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.pretrained.model_card import Table
from longform_lab.report import Report, Section, listed, write_report
from longform_lab.spectrum.heads import inside_and_across
from longform_lab.spectrum.results import RunResult
from longform_lab.spectrum.settings import SpectrumView
from longform_lab.spectrum.views import CHOSEN, COMPARISON, chosen_per_layer, plot_path

LEAD = (
    "Singular values of softmax(QKᵀ/√d), of each text's valid tokens alone. A share is the sum of the first j "
    "singular values over the sum of all, not squared, averaged over texts (Linformer, Figure 1). The effective "
    "rank is exp of the entropy of the normalised singular values (Roy and Vetterli, 2007). The best map of rank k "
    "keeps the first k singular values; a projection to k slots does not have to find it."
)


def report_spectra(results: Sequence[RunResult], view: SpectrumView, output: Path, settings: Mapping[str, Any]) -> None:
    """Write the report into ``output``, where the pictures are."""
    sections = []
    if len(results) > 1:
        said = f"share of the sum in the first {view.indices[0]} singular values against depth, a line a run"
        sections.append(Section("Side by side", pictures=[(str(COMPARISON), said)]))
    sections += [section for result in results for section in sections_of(result, view)]
    title = "How low is the rank of attention?"
    write_report(output, Report(title, [LEAD], sections, foot=f"Settings: {listed(settings)}."))


def sections_of(result: RunResult, view: SpectrumView) -> list[Section]:
    """Sections of one model on one corpus."""
    spectrum, name = result.spectrum, f"{result.model} on {result.corpus}"
    machine = f" on this machine and with these versions: {listed(result.facts)}" if result.facts else ""
    counted = (
        f"{spectrum.texts:,} texts, {spectrum.tokens / spectrum.texts:,.0f} tokens on average ({spectrum.shortest:,} "
        f"to {spectrum.longest:,}); {spectrum.cut:,} were cut, {spectrum.passed_over:,} passed over as too short; "
        f"measured in {result.seconds:,.0f} s{machine}."
    )
    notes = [f"{note}." for note in result.notes]
    pictures = [_picture(result, "curves"), _picture(result, "heat_map")]
    found = [Section(name, _table(result, view), pictures, [counted, *notes])]
    found.append(Section(f"k from the spectrum: {name}", text=_k(result, view)))
    if result.similarity is not None:
        inside, across = inside_and_across(result.similarity, result.spectrum.effective_rank.shape[1])
        layers = ", ".join(f"{float(value):.2f}" for value in inside)
        said = f"Mean cosine of two heads' maps in one layer, layer by layer: {layers}; across layers: {across:.2f}."
        found.append(
            Section(f"Do heads attend the same? {name}", pictures=[_picture(result, "similarity")], text=[said])
        )
    return found


def _picture(result: RunResult, kind: str) -> tuple[str, str]:
    return str(plot_path(result, kind)), f"{kind.replace('_', ' ')} of {result.name}"


def _table(result: RunResult, view: SpectrumView) -> Table:
    spectrum = result.spectrum
    chosen = chosen_per_layer(result, view)
    shares = [f"share at {index} (lowest – highest head)" for index in view.indices]
    rows = []
    for layer, curves in enumerate(spectrum.cumulative):
        at = [curves[:, index - 1] for index in view.indices]
        shown = [f"{float(x.mean()):.1%} ({float(x.min()):.0%} – {float(x.max()):.0%})" for x in at]
        rank = float(spectrum.effective_rank[layer].mean())
        rows.append([str(layer + 1), *shown, f"{rank:,.1f}", *(f"{ks[layer]:,}" for ks in chosen.values())])
    return Table(["layer", *shares, "effective rank", *chosen], rows)


def _k(result: RunResult, view: SpectrumView) -> list[str]:
    """Sentences about the k of each layer."""
    chosen = chosen_per_layer(result, view).items()
    said = [f"{name}: {', '.join(map(str, ks))} ({sum(ks):,} together)." for name, ks in chosen]
    kind = "mean, max and convolution projections can have (runs of whole tokens)" if view.pooled else "there are"
    return [
        *said,
        f'Chosen among those that {kind}. Files for "longform convert --projected-length FILE" are in {CHOSEN}/.',
    ]
