"""``report.html`` of the spectra: one file, pictures inside, from the measured results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.page import Heading, Table
from longform_lab.page import Block, Bullets, Picture, write_page
from longform_lab.spectrum.heads import inside_and_across
from longform_lab.spectrum.plots import KINDS, plot_comparison
from longform_lab.spectrum.results import HeadComparison, RunResult
from longform_lab.spectrum.settings import SpectrumView
from longform_lab.spectrum.views import CHOSEN, PLOTS, chosen_per_layer, plot_path, slots_below, uniform_share

NEAR = 0.95  # cosine of an embedding to the model's own that is called near
LEAD = (
    "Singular values of softmax(QKᵀ/√d), of each text's valid tokens alone. A share is the sum of the first j "
    "singular values over the sum of all, not squared, averaged over texts (Linformer, Figure 1). The effective "
    "rank is exp of the entropy of the normalised singular values (Roy and Vetterli, 2007). The best map of rank k "
    "keeps the first k singular values; a projection to k slots does not have to find it."
)


def write_report(results: Sequence[RunResult], view: SpectrumView, output: Path, settings: Mapping[str, Any]) -> None:
    """Write ``report.html`` into ``output``, where the pictures are."""
    blocks: list[Block] = [LEAD]
    if len(results) > 1:
        said = f"share of the sum in the first {view.indices[0]} singular values against depth, a line a run"
        together = output / PLOTS / "comparison.png"
        plot_comparison(results, view.indices[0], together)
        blocks += [Heading("Side by side"), Picture.read(together, said)]
    blocks += [block for result in results for block in _run(result, view, output)]
    chosen = ", ".join(f"{name} {value}" for name, value in settings.items())
    write_page(output / "report.html", "How low is the rank of attention?", blocks, foot=f"Settings: {chosen}.")


def _run(result: RunResult, view: SpectrumView, output: Path) -> list[Block]:
    spectrum = result.spectrum
    ran_on = ", ".join(f"{name} {value}" for name, value in result.facts.items())
    machine = f" on this machine and with these versions: {ran_on}" if ran_on else ""
    return [
        Heading(f"{result.model} on {result.corpus}"),
        f"{spectrum.texts:,} texts, {spectrum.tokens / spectrum.texts:,.0f} tokens on average ({spectrum.shortest:,} "
        f"to {spectrum.longest:,}); {spectrum.cut:,} were cut, {spectrum.passed_over:,} passed over as too short; "
        f"measured in {result.seconds:,.0f} s{machine}.",
        *(f"{note}." for note in result.notes),
        _table(result, view),
        _picture(output, result, "curves", f"curves of {result.name}"),
        _picture(output, result, "heat_map", f"heat map of {result.name}"),
        *_k(result, view, output),
        *(_heads(result, result.heads, output) if result.heads is not None else ()),
    ]


def _picture(output: Path, result: RunResult, kind: str, said: str) -> Picture:
    return Picture.read(plot_path(output, result, kind), said)


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


def _k(result: RunResult, view: SpectrumView, output: Path) -> list[Block]:
    chosen = chosen_per_layer(result, view)
    length = result.spectrum.cumulative.shape[-1]
    budgets = [sum(ks) for ks in chosen.values()]
    if view.total_k is not None:
        budgets[-1] = view.total_k  # of which pooled slots may not spend everything
    said = []
    for (name, ks), budget in zip(chosen.items(), budgets, strict=True):
        same = slots_below(length, budget // len(ks), pooled=view.pooled)
        said.append(
            f"{name}: {', '.join(map(str, ks))} ({sum(ks):,} together); the same k everywhere with no "
            f"more slots is {same}, whose layers keep at least {uniform_share(result, same):.1%}"
        )
    kind = "mean, max and convolution projections can have (runs of whole tokens)" if view.pooled else "there are"
    return [
        Heading("k from the spectrum", 3),
        _picture(output, result, "k", "k that each layer needs"),
        Bullets(said),
        f'Chosen among those that {kind}. Files for "longform convert --projected-length FILE" are in {CHOSEN}/.',
    ]


def _heads(result: RunResult, compared: HeadComparison, output: Path) -> list[Block]:
    inside, across = inside_and_across(compared.similarity, result.spectrum.effective_rank.shape[1])
    layers = ", ".join(f"{float(value):.2f}" for value in inside)
    blocks: list[Block] = [
        Heading("Do heads attend the same?", 3),
        f"Mean cosine of two heads' maps in one layer, layer by layer: {layers}; of heads of different layers: "
        f"{across:.2f} ({compared.compared} texts).",
        _picture(output, result, "similarity", "cosine of every two heads' maps"),
    ]
    if compared.fidelity:
        blocks += [
            "The most redundant heads use the map of the head they resemble, so their queries and keys are not "
            f"needed; nothing is trained; measured on {compared.tried} other texts. {_verdict(compared)}",
            _picture(output, result, "sharing", "cosine of the embedding as heads share maps"),
            _fidelity_table(compared),
        ]
    return blocks


def _fidelity_table(compared: HeadComparison) -> Table:
    heads = [
        "which heads share",
        "heads that use another's map",
        "cosine of the embedding",
        "relative error of hidden states",
    ]
    rows = [
        [
            KINDS[row["pairs"]][0],
            f"{row['replaced']} ({row['share']:.0%})",
            f"{row['cosine']:.4f}",
            f"{row['error']:.3f}",
        ]
        for row in compared.fidelity
    ]
    return Table(heads, rows)


def _verdict(compared: HeadComparison) -> str:
    """How many maps can go before the embedding is another one."""
    near = [row for row in compared.fidelity if row["pairs"] != "random" and row["cosine"] >= NEAR]
    count = len(compared.similarity)
    if not near:
        return f"None of the tried numbers of heads keeps the embedding within a cosine of {NEAR}."
    most = max(near, key=lambda row: (row["replaced"], row["cosine"]))
    return (
        f"With {most['replaced']} of {count} heads following ({KINDS[most['pairs']][0]}) the embedding's cosine to the "
        f"model's own is {most['cosine']:.3f}, the most of those tried that stay at {NEAR} or above."
    )
