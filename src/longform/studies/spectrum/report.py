"""``report.html`` of the spectra: one file, pictures inside, from the measured results."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from longform.data.text import atomic_write
from longform.runs.pictures import inline_picture
from longform.studies.spectrum.heads import inside_and_across
from longform.studies.spectrum.measure import mean_tokens
from longform.studies.spectrum.plots import KINDS
from longform.studies.spectrum.results import HeadComparison, RunResult
from longform.studies.spectrum.settings import SpectrumView
from longform.studies.spectrum.views import (
    CHOSEN,
    chosen_per_layer,
    draw_comparison,
    plot_path,
    slots_below,
    uniform_share,
)

NEAR = 0.95  # cosine of an embedding to the model's own that is called near
STYLE = """
body { margin:0 auto; max-width:1080px; padding:32px 24px 64px; color:#1c2330; background:#fff;
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
h1 { font-size:30px; margin:0 0 6px; } h2 { font-size:22px; margin:44px 0 8px; }
h3 { font-size:17px; margin:28px 0 6px; }
p { max-width:80ch; } table { border-collapse:collapse; font-size:14.5px; font-variant-numeric:tabular-nums; }
th,td { padding:5px 11px; border-bottom:1px solid #e3e7ed; text-align:right; } th { color:#5d6879; font-weight:600; }
img { max-width:100%; height:auto; } code { font:.92em ui-monospace,Menlo,Consolas,monospace; }
.soft { color:#5d6879; } .wide { overflow-x:auto; }
"""


def write_report(results: Sequence[RunResult], view: SpectrumView, output: Path, settings: Mapping[str, Any]) -> None:
    """Write ``report.html`` into ``output``, where the pictures are."""
    parts = ["<h1>How low is the rank of attention?</h1>", _lead(view)]
    if len(results) > 1:
        said = f"share of the sum in the first {view.indices[0]} singular values against depth, a line a run"
        parts.append(f"<h2>Side by side</h2>{inline_picture(draw_comparison(results, view, output), said=said)}")
    parts += [_run(result, view, output) for result in results]
    chosen = ", ".join(f"{name} {value}" for name, value in settings.items())
    parts.append(f'<p class="soft">Settings: {escape(chosen)}.</p>')
    with atomic_write(output / "report.html") as file:
        file.write(html_page("Spectrum of attention", "".join(parts)))


def html_page(title: str, body: str) -> str:
    """A whole page in the style of the spectrum's reports."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style>'
        f"</head><body>{body}</body></html>\n"
    )


def _lead(view: SpectrumView) -> str:
    return (
        "<p>Singular values of softmax(QKᵀ/√d), of each text's valid tokens alone. A share is the sum of the first j "
        "singular values over the sum of all, not squared, averaged over texts (Linformer, Figure 1). The effective "
        "rank is exp of the entropy of the normalised singular values (Roy and Vetterli, 2007). The best map of rank k "
        "keeps the first k singular values; a projection to k slots does not have to find it.</p>"
    )


def _run(result: RunResult, view: SpectrumView, output: Path) -> str:
    spectrum = result.spectrum
    facts = (
        f"{spectrum.texts:,} texts, {mean_tokens(spectrum):,} tokens on average ({spectrum.shortest:,} to "
        f"{spectrum.longest:,}); {spectrum.cut:,} were cut, {spectrum.passed_over:,} passed over as too short; "
        f"measured in {result.seconds:,.0f} s{_machine(result.facts)}."
    )
    notes = "".join(f"<p>{escape(note)}.</p>" for note in result.notes)
    pictures = "".join(
        inline_picture(plot_path(output, result, kind), said=f"{kind.replace('_', ' ')} of {result.name}")
        for kind in ("curves", "heat_map")
    )
    return (
        f"<h2>{escape(result.model)} on {escape(result.corpus)}</h2><p class='soft'>{facts}</p>{notes}"
        f"{_table(result, view)}{pictures}{_k(result, view, output)}{_heads(result, output)}"
    )


def _machine(facts: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f" on this machine and with these versions: {escape(said)}" if said else ""


def _table(result: RunResult, view: SpectrumView) -> str:
    spectrum = result.spectrum
    chosen = chosen_per_layer(result, view)
    heads = [
        "layer",
        *(f"share at {index} (lowest – highest head)" for index in view.indices),
        "effective rank",
        *chosen,
    ]
    rows = []
    for layer, curves in enumerate(spectrum.cumulative):
        shares = [
            f"{float(at.mean()):.1%} ({float(at.min()):.0%} – {float(at.max()):.0%})"
            for at in (curves[:, index - 1] for index in view.indices)
        ]
        rank = float(spectrum.effective_rank[layer].mean())
        rows.append([str(layer + 1), *shares, f"{rank:,.1f}", *(f"{ks[layer]:,}" for ks in chosen.values())])
    return f'<div class="wide">{html_table(heads, rows)}</div>'


def _k(result: RunResult, view: SpectrumView, output: Path) -> str:
    chosen = chosen_per_layer(result, view)
    length = result.spectrum.cumulative.shape[-1]
    budgets = [sum(ks) for ks in chosen.values()]
    if view.total_k is not None:
        budgets[-1] = view.total_k  # of which pooled slots may not spend everything
    said = []
    for (name, ks), budget in zip(chosen.items(), budgets, strict=True):
        same = slots_below(length, budget // len(ks), pooled=view.pooled)
        said.append(
            f"<li>{escape(name)}: {', '.join(map(str, ks))} ({sum(ks):,} together); the same k everywhere with no "
            f"more slots is {same}, whose layers keep at least {uniform_share(result, same):.1%}</li>"
        )
    kind = "mean, max and convolution projections can have (runs of whole tokens)" if view.pooled else "there are"
    return (
        f"<h3>k from the spectrum</h3>{inline_picture(plot_path(output, result, 'k'), said='k that each layer needs')}"
        f"<ul>{''.join(said)}</ul><p>Chosen among those that {kind}. Files for <code>longform convert "
        f"--projected-length FILE</code> are in <code>{CHOSEN}/</code>.</p>"
    )


def _heads(result: RunResult, output: Path) -> str:
    if result.heads is None:
        return ""
    compared = result.heads
    inside, across = inside_and_across(compared.similarity, result.spectrum.effective_rank.shape[1])
    layers = ", ".join(f"{float(value):.2f}" for value in inside)
    parts = [
        "<h3>Do heads attend the same?</h3>",
        f"<p>Mean cosine of two heads' maps in one layer, layer by layer: {layers}; of heads of different layers: "
        f"{across:.2f} ({compared.compared} texts).</p>",
        inline_picture(plot_path(output, result, "similarity"), said="cosine of every two heads' maps"),
    ]
    if compared.fidelity:
        rows = [
            [
                KINDS[row["pairs"]][0],
                f"{row['replaced']} ({row['share']:.0%})",
                f"{row['cosine']:.4f}",
                f"{row['error']:.3f}",
            ]
            for row in compared.fidelity
        ]
        heads = [
            "which heads share",
            "heads that use another's map",
            "cosine of the embedding",
            "relative error of hidden states",
        ]
        parts += [
            f"<p>The most redundant heads use the map of the head they resemble, so their queries and keys are not "
            f"needed; nothing is trained; measured on {compared.tried} other texts. {_verdict(compared)}</p>",
            inline_picture(plot_path(output, result, "sharing"), said="cosine of the embedding as heads share maps"),
            f'<div class="wide">{html_table(heads, rows)}</div>',
        ]
    return "".join(parts)


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


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text cells under ``heads``."""
    first = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>"
