"""Pictures of the theorems: k against n, how often projections fail, and the error of rank k."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from longform.runs.pictures import literal, new_figure, save_figure
from longform.studies.bounds.compression_error import BEST, ErrorRow
from longform.studies.bounds.monte_carlo import Cell
from longform.studies.bounds.results import ROUNDING, BoundResult
from longform.studies.bounds.theorems import smallest_useful_length, theorem_1, theorem_2

PLOTS = "plots"
FLOOR = 1e-7  # where a failure that was never seen is drawn
PROVED = {
    "row": "one row, one column",
    "map": "any of n rows, one column\n(Theorem 1)",
    "all": "any of n rows, any of d columns\n(Theorem 2's union)",
}
PRINTED = {
    "vector": "one row, d columns, with RᵀR\n(Theorem 2 before E and F)",
    "construction": "one row, d columns,\nE = δR, F = exp(-δ)R (Theorem 2)",
    "literal": "‖P RᵀR w - P w‖ > ε ‖P w‖\n(Theorem 1 as printed)",
}
STYLES = {
    BEST: ("black", "o", "-"),
    "E and F, fitted": ("tab:blue", "s", "-"),
    "convolution, fitted": ("tab:green", "^", "-"),
    "mean": ("tab:orange", "D", "-"),
    "random, theorem 1": ("tab:red", "x", "--"),
    "random, theorem 2": ("tab:purple", "+", "--"),
}


def picture_paths(result: BoundResult, output: Path) -> dict[str, Path]:
    """What a picture shows -> its file."""
    lengths = sorted({cell.length for cell in result.cells})
    paths = {"k against n": output / PLOTS / "k.png"}
    for length in lengths:
        paths[f"failures at n = {length}"] = output / PLOTS / f"failures-{length}.png"
        paths[f"the printed forms at n = {length}"] = output / PLOTS / f"printed-{length}.png"
    if result.errors:
        paths["error against k"] = output / PLOTS / "error.png"
    return paths


def draw_bound(result: BoundResult, output: Path) -> None:
    """All pictures of ``result``, into ``output``/plots."""
    paths = picture_paths(result, output)
    epsilons = sorted({row.epsilon for row in result.guarantees})
    plot_k(epsilons, result.guarantees[0].head_size, paths["k against n"])
    for length in sorted({cell.length for cell in result.cells}):
        cells = [cell for cell in result.cells if cell.length == length]
        plot_failures(cells, PROVED, f"Failures of random projections, n = {length}: all are below the proved bound"
                      if not result.broken() else f"Failures of random projections, n = {length}",
                      paths[f"failures at n = {length}"])  # fmt: skip
        plot_failures(cells, PRINTED, f"What the theorems' text adds to the lemma, n = {length}",
                      paths[f"the printed forms at n = {length}"])  # fmt: skip
    if result.errors:
        plot_errors(result, paths["error against k"])


def plot_k(epsilons: Sequence[float], head_size: int, path: Path) -> None:
    """k of both theorems against n, and where it is not below n."""
    figure = new_figure(7.2, 4.8)
    axes = figure.add_subplot()
    lengths = [2**power for power in range(5, 18)]
    axes.fill_between(lengths, lengths, 10 * lengths[-1], color="0.5", alpha=0.15, linewidth=0)
    axes.plot(lengths, lengths, color="0.4", linewidth=1)
    axes.text(40, 3e4, "k ≥ n: nothing is shortened", color="0.3", fontsize=9)
    for epsilon, colour in zip(epsilons, _colours(len(epsilons)), strict=True):
        first = [theorem_1(length, epsilon).k for length in lengths]
        second = [theorem_2(length, head_size, epsilon).k for length in lengths]
        useful = smallest_useful_length(epsilon)
        axes.plot(lengths, first, color=colour, label=f"ε = {epsilon}: below n from n = {useful:,}")
        axes.plot(lengths, second, color=colour, linestyle="--", linewidth=1)
    axes.plot([], [], color="0.3", linestyle="--", linewidth=1, label=f"dashed: Theorem 2, d = {head_size}")
    axes.set(xscale="log", yscale="log", xlim=(lengths[0], lengths[-1]), ylim=(30, lengths[-1]))
    axes.set_xlabel("n (tokens)")
    axes.set_ylabel("k (slots)")
    axes.set_title("k = 5 ln(n) / (ε² - ε³): what Theorem 1 asks for", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="lower right")
    save_figure(figure, path)


def plot_failures(cells: Sequence[Cell], events: dict[str, str], title: str, path: Path) -> None:
    """Share of failures against k, a row of panels an event of ``events`` (event -> what it is), a column an ε."""
    epsilons = sorted({cell.epsilon for cell in cells})
    sources = list(dict.fromkeys(cell.source for cell in cells))
    colours = dict(zip(sources, ["0.55", "tab:red", *_colours(len(sources))], strict=False))
    figure = new_figure(max(7.6, 1.2 + 3.3 * len(epsilons)), 0.9 + 2.7 * len(events))
    grid = figure.subplots(len(events), len(epsilons), sharex=True, sharey=True, squeeze=False)
    for panels, (event, said) in zip(grid, events.items(), strict=True):
        for axes, epsilon in zip(panels, epsilons, strict=True):
            here = [cell for cell in cells if cell.event == event and cell.epsilon == epsilon]
            _failure_panel(axes, here, colours)
        panels[0].set_ylabel(f"{said}\n\nshare that fails", fontsize=8)
    for axes, epsilon in zip(grid[0], epsilons, strict=True):
        axes.set_title(f"ε = {epsilon}", fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("k (slots)")
    handles = {handle.get_label(): handle for axes in grid.flat for handle in axes.get_lines()}
    shown = [handle for label, handle in handles.items() if not label.startswith("_")]
    figure.legend(handles=shown, loc="outside lower center", ncols=5, fontsize=8)
    figure.suptitle(title, fontsize=11)
    save_figure(figure, path)


def _failure_panel(axes: Any, cells: Sequence[Cell], colours: dict[str, Any]) -> None:
    for source, colour in colours.items():
        rows = sorted((cell for cell in cells if cell.source == source), key=lambda cell: cell.k)
        axes.plot([row.k for row in rows], [max(row.failure, FLOOR) for row in rows], color=colour, marker=".",
                  linewidth=1, label=source)  # fmt: skip
    bounded = sorted({(cell.k, cell.bound) for cell in cells if cell.bound is not None})
    if bounded:
        axes.plot([k for k, _ in bounded], [max(min(bound, 1.0), FLOOR) for _, bound in bounded], color="black",
                  linestyle="--", label="bound, at most 1")  # fmt: skip
    axes.set(xscale="log", yscale="log", ylim=(FLOOR / 2, 2))
    axes.set_yticks([FLOOR, 1e-5, 1e-3, 1e-1, 1], ["0", "10⁻⁵", "10⁻³", "0.1", "1"])
    axes.minorticks_off()
    ks = sorted({cell.k for cell in cells})
    fours = [k for k in ks if math.log2(k) % 2 == 0]
    ticks = fours if len(fours) > 1 else ks
    axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)


def plot_errors(result: BoundResult, path: Path) -> None:
    """Error against k, a column a layer: of the map above, of the output below."""
    layers = sorted({row.layer for row in result.errors})
    figure = new_figure(max(7.6, 1.2 + 3.4 * min(len(layers), 6)), 7.4)
    shown = layers if len(layers) <= 6 else [layers[round(i * (len(layers) - 1) / 5)] for i in range(6)]
    grid = figure.subplots(2, len(shown), sharex=True, sharey="row", squeeze=False)
    for panels, error in zip(grid, ("map", "output"), strict=True):
        for axes, layer in zip(panels, shown, strict=True):
            _error_panel(axes, [row for row in result.errors if row.layer == layer], error)
    grid[0][0].set_ylabel("error of the map\n‖P~ - P‖ / ‖P‖")
    grid[1][0].set_ylabel("error of the output\n‖P~V - PV‖ / ‖PV‖")
    for axes, layer in zip(grid[0], shown, strict=True):
        axes.set_title(f"layer {layer + 1}", fontsize=10)
    for axes in grid[1]:
        axes.set_xlabel("k (slots, rank)")
    handles = grid[0][0].get_lines()
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    length = result.errors[0].length
    below = "nor is any output here (below)" if _best_output(result) else "for the output it is not optimal (below)"
    figure.suptitle(
        f"{literal(f'{result.model} on {result.texts}')}, n = {length}:\n"
        f"no map of rank k is nearer than the SVD's (above), {below}",
        fontsize=11,
    )
    save_figure(figure, path)


def _best_output(result: BoundResult) -> bool:
    """Whether no other method's output is nearer than the SVD's, in any layer, at any k."""
    best = {(row.layer, row.k): row.output_error for row in result.errors if row.method == BEST}
    return all(row.output_error >= best[row.layer, row.k] - ROUNDING for row in result.errors)


def _error_panel(axes: Any, rows: Iterable[ErrorRow], error: str) -> None:
    rows = [row for row in rows if row.fitted_to in (None, error)]
    for method, (colour, marker, line) in STYLES.items():
        here = sorted((row for row in rows if row.method == method), key=lambda row: row.k)
        values = [getattr(row, f"{error}_error") for row in here]
        axes.plot([row.k for row in here], values, color=colour, marker=marker, linestyle=line, linewidth=1.4,
                  markersize=4.5, label=method if method != BEST else "best map of rank k (SVD)")  # fmt: skip
    ks = sorted({row.k for row in rows})
    axes.axhline(1.0, color="0.6", linewidth=0.8, linestyle=":", label="a map of zeros")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.grid(alpha=0.25, which="both")


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["viridis"](place / max(1, count - 1) * 0.85) for place in range(count)]
