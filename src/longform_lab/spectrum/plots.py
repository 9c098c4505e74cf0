"""Pictures of spectra: the paper's Figure 1, k for a share, and heads that attend alike."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from longform_lab.pictures import colours, finish, literal, picture
from longform_lab.spectrum.heads import inside_and_across
from longform_lab.spectrum.results import RunResult


def plot_curves(result: RunResult, index: int, path: Path) -> None:
    """Normalised cumulative spectrum against the index, a curve a layer (mean over heads), as Figure 1's left."""
    curves = result.spectrum.cumulative.mean(1)
    layers, length = curves.shape
    at = curves[:, index - 1]
    title = (
        f"{_subject(result)}:\n{index} of {length} singular values hold {float(at.min()):.0%} "
        f"(layer {int(at.argmin()) + 1}) to {float(at.max()):.0%} (layer {int(at.argmax()) + 1}) of the sum"
    )
    with picture(path, 7.2, 4.8) as axes:
        for layer, (curve, colour) in enumerate(zip(curves.tolist(), colours(layers), strict=True)):
            axes.plot(range(1, length + 1), curve, color=colour, linewidth=1.6, label=f"layer {layer + 1}")
        axes.plot([1, length], [1 / length, 1], color="0.6", linewidth=1, linestyle=":", label="all equal")
        axes.axvline(index, color="0.4", linewidth=1, linestyle="--")
        across, up = "singular value, largest first (index)", "share of the sum of all singular values"
        legend = {"ncols": 1 + layers // 13, "loc": "lower right"}
        finish(axes, title, across, up, legend=legend, xlim=(1, length), ylim=(0, 1.01))


def plot_heat_map(result: RunResult, index: int, path: Path) -> None:
    """Share of the sum at ``index``, layer x head, as Figure 1's right."""
    shares = result.spectrum.cumulative[..., index - 1]
    layers, heads = shares.shape
    length = result.spectrum.cumulative.shape[-1]
    middle = (float(shares.min()) + float(shares.max())) / 2
    with picture(path, 2.6 + 0.52 * heads, 1.9 + 0.42 * layers) as axes:
        image = axes.imshow(shares.tolist(), cmap="viridis", aspect="auto")
        axes.set_xticks(range(heads), range(1, heads + 1))
        axes.set_yticks(range(layers), range(1, layers + 1))
        axes.set(xlabel="head", ylabel="layer")
        for layer, row in enumerate(shares.tolist()):
            for head, value in enumerate(row):
                colour = "black" if value > middle else "white"
                axes.text(head, layer, f"{100 * value:.0f}", ha="center", va="center", fontsize=8, color=colour)
        axes.figure.colorbar(image, ax=axes, label="share of the sum", format=_percent)
        axes.set_title(f"{_subject(result)}:\n% of the sum in {index} of {length} singular values", fontsize=11)


def plot_comparison(results: Sequence[RunResult], index: int, path: Path) -> None:
    """Share of the sum at ``index`` against depth, a line a run: mean over heads, band from lowest to highest head."""
    with picture(path, 7.2, 4.4) as axes:
        for place, result in enumerate(results):
            shares, colour = result.spectrum.cumulative[..., index - 1], f"C{place}"
            depth = [(layer + 0.5) / len(shares) for layer in range(len(shares))]
            low, high = shares.amin(1).tolist(), shares.amax(1).tolist()
            axes.fill_between(depth, low, high, color=colour, alpha=0.12, linewidth=0)
            axes.plot(depth, shares.mean(1).tolist(), marker="o", color=colour, label=_subject(result))
        title = "How far the spectrum is concentrated, layer by layer (band: all heads)"
        up = f"share of the sum in the first {index} singular values"
        finish(axes, title, "depth (0: input, 1: output)", up, xlim=(0, 1))


def plot_similarity(result: RunResult, similarity: Tensor, path: Path) -> None:
    """Cosine of every two heads' maps, layer by layer."""
    layers, heads = result.spectrum.effective_rank.shape
    inside, across = inside_and_across(similarity, heads)
    middles = [layer * heads + (heads - 1) / 2 for layer in range(layers)]
    names = [f"{layer + 1}" for layer in range(layers)]
    with picture(path, 7.0, 6.2) as axes:
        image = axes.imshow(similarity.tolist(), cmap="magma", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_xticks(middles, names)
        axes.set_yticks(middles, names)
        axes.tick_params(length=0)
        for layer in range(1, layers):
            for line in (axes.axhline, axes.axvline):
                line(layer * heads - 0.5, color="white", linewidth=0.7)
        axes.set(xlabel=f"layer ({heads} heads each)", ylabel=f"layer ({heads} heads each)")
        axes.figure.colorbar(image, ax=axes, label="cosine of two heads' maps")
        axes.set_title(
            f"{_subject(result)}:\nheads of one layer are alike by {float(inside.mean()):.2f} on average, "
            f"of different layers by {across:.2f}",
            fontsize=11,
        )


def _subject(result: RunResult) -> str:
    return f"{literal(result.model)} on {literal(result.corpus)}"


def _percent(value: float, _place: int | None = None) -> str:
    return f"{value:.0%}"
