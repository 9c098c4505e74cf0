"""Pictures of spectra: the paper's Figure 1, k for a share, and heads that attend alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from longform.runs.pictures import literal, new_figure, save_figure
from longform.studies.spectrum.heads import inside_and_across
from longform.studies.spectrum.results import HeadComparison, RunResult

KINDS = {
    "inside": ("most alike, in one layer", "tab:blue", "o"),
    "across": ("most alike, in any layer", "tab:orange", "s"),
    "random": ("any two in one layer", "tab:gray", "x"),
}


def plot_curves(result: RunResult, index: int, path: Path) -> None:
    """Normalised cumulative spectrum against the index, a curve a layer (mean over heads), as Figure 1's left."""
    curves = result.spectrum.cumulative.mean(1)
    layers, length = curves.shape
    figure = new_figure(7.2, 4.8)
    axes = figure.add_subplot()
    colours = _colours(layers)
    for layer, curve in enumerate(curves.tolist()):
        axes.plot(range(1, length + 1), curve, color=colours[layer], linewidth=1.6, label=f"layer {layer + 1}")
    axes.plot([1, length], [1 / length, 1], color="0.6", linewidth=1, linestyle=":", label="all equal")
    axes.axvline(index, color="0.4", linewidth=1, linestyle="--")
    at = curves[:, index - 1]
    axes.set_title(
        f"{_subject(result)}:\n{index} of {length} singular values hold {float(at.min()):.0%} "
        f"(layer {int(at.argmin()) + 1}) to {float(at.max()):.0%} (layer {int(at.argmax()) + 1}) of the sum",
        fontsize=11,
    )
    axes.set_xlabel("singular value, largest first (index)")
    axes.set_ylabel("share of the sum of all singular values")
    axes.set(xlim=(1, length), ylim=(0, 1.01))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, ncols=1 + layers // 13, loc="lower right")
    save_figure(figure, path)


def plot_heat_map(result: RunResult, index: int, path: Path) -> None:
    """Share of the sum at ``index``, layer x head, as Figure 1's right."""
    shares = result.spectrum.cumulative[..., index - 1]
    layers, heads = shares.shape
    length = result.spectrum.cumulative.shape[-1]
    figure = new_figure(2.6 + 0.52 * heads, 1.9 + 0.42 * layers)
    axes = figure.add_subplot()
    image = axes.imshow(shares.tolist(), cmap="viridis", aspect="auto")
    axes.set_xticks(range(heads), range(1, heads + 1))
    axes.set_yticks(range(layers), range(1, layers + 1))
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    middle = (float(shares.min()) + float(shares.max())) / 2
    for layer, row in enumerate(shares.tolist()):
        for head, value in enumerate(row):
            colour = "black" if value > middle else "white"
            axes.text(head, layer, f"{100 * value:.0f}", ha="center", va="center", fontsize=8, color=colour)
    figure.colorbar(image, ax=axes, label="share of the sum", format=_percent)
    axes.set_title(f"{_subject(result)}:\n% of the sum in {index} of {length} singular values", fontsize=11)
    save_figure(figure, path)


def plot_k(result: RunResult, shares: Sequence[float], chosen: dict[str, list[int]], path: Path) -> None:
    """k that each layer needs for several ``shares`` of the sum, and the k ``chosen`` (name -> k a layer) as steps."""
    cumulative = result.spectrum.cumulative.mean(1)
    layers, length = cumulative.shape
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    places = list(range(1, layers + 1))
    for share, colour in zip(shares, _colours(len(shares)), strict=True):
        needed = [1 + int((curve < share).sum()) for curve in cumulative]
        axes.plot(places, needed, marker="o", color=colour, label=f"{share:.0%} of the sum")
    for (name, ks), style in zip(chosen.items(), ("--", ":", "-."), strict=False):
        axes.step(places, ks, where="mid", color="black", linestyle=style, linewidth=1.2, label=name)
    axes.set_xticks(places)
    axes.set_xlabel("layer")
    axes.set_ylabel(f"k (of {length})")
    axes.set_ylim(0, None)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    axes.set_title(f"{_subject(result)}: singular values that each layer needs", fontsize=11)
    save_figure(figure, path)


def plot_comparison(results: Sequence[RunResult], index: int, path: Path) -> None:
    """Share of the sum at ``index`` against depth, a line a run: mean over heads, band from lowest to highest head."""
    figure = new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    for result, colour in zip(results, _colours(len(results), "tab10"), strict=True):
        shares = result.spectrum.cumulative[..., index - 1]
        depth = [(layer + 0.5) / len(shares) for layer in range(len(shares))]
        axes.fill_between(
            depth, shares.amin(1).tolist(), shares.amax(1).tolist(), color=colour, alpha=0.12, linewidth=0
        )
        axes.plot(depth, shares.mean(1).tolist(), marker="o", color=colour, label=_subject(result))
    axes.set_xlabel("depth (0: input, 1: output)")
    axes.set_ylabel(f"share of the sum in the first {index} singular values")
    axes.set_xlim(0, 1)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    axes.set_title("How far the spectrum is concentrated, layer by layer (band: all heads)", fontsize=11)
    save_figure(figure, path)


def plot_similarity(result: RunResult, compared: HeadComparison, path: Path) -> None:
    """Cosine of every two heads' maps, layer by layer."""
    layers, heads = result.spectrum.effective_rank.shape
    inside, across = inside_and_across(compared.similarity, heads)
    figure = new_figure(7.0, 6.2)
    axes = figure.add_subplot()
    image = axes.imshow(compared.similarity.tolist(), cmap="magma", vmin=0.0, vmax=1.0, interpolation="nearest")
    middles = [layer * heads + (heads - 1) / 2 for layer in range(layers)]
    for names, place in ((axes.set_xticks, "x"), (axes.set_yticks, "y")):
        names(middles, [f"{layer + 1}" for layer in range(layers)])
        axes.tick_params(axis=place, length=0)
    for layer in range(1, layers):
        for line in (axes.axhline, axes.axvline):
            line(layer * heads - 0.5, color="white", linewidth=0.7)
    axes.set_xlabel(f"layer ({heads} heads each)")
    axes.set_ylabel(f"layer ({heads} heads each)")
    figure.colorbar(image, ax=axes, label="cosine of two heads' maps")
    axes.set_title(
        f"{_subject(result)}:\nheads of one layer are alike by {float(inside.mean()):.2f} on average, "
        f"of different layers by {across:.2f}", fontsize=11,
    )  # fmt: skip
    save_figure(figure, path)


def plot_sharing(result: RunResult, compared: HeadComparison, path: Path) -> None:
    """Cosine of the embedding to the unchanged model's against the share of heads that use another head's map."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    for kind, (said, colour, marker) in KINDS.items():
        rows = [row for row in compared.fidelity if row["pairs"] == kind]
        axes.plot([0.0, *(row["share"] for row in rows)], [1.0, *(row["cosine"] for row in rows)], color=colour,
                  marker=marker, label=said)  # fmt: skip
    axes.set_xlabel("heads that use another head's map (share of all heads)")
    axes.set_ylabel("cosine of the embedding to the model's own")
    axes.xaxis.set_major_formatter(_percent)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=9, title="which heads share")
    axes.set_title(f"{_subject(result)}: fewer maps, nothing trained", fontsize=11)
    save_figure(figure, path)


def _subject(result: RunResult) -> str:
    return f"{literal(result.model)} on {literal(result.corpus)}"


def _percent(value: float, _place: int | None = None) -> str:
    return f"{value:.0%}"


def _colours(count: int, name: str = "viridis") -> list[Any]:
    from matplotlib import colormaps

    if name == "tab10":
        return [colormaps[name](place % 10) for place in range(count)]
    return [colormaps[name](value) for value in torch.linspace(0.0, 0.92, max(count, 2)).tolist()][:count]
