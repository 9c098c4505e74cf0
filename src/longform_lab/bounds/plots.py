"""Pictures of ``longform bound``: how often random projections fail, and error against k.

P is an attention map, p a row of it, V its values, w a column of them, R a random projection (k, n), d the head
dimension; ε and δ as in the paper. A projection fails where an error is above ε.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from longform_lab.bounds.attention_samples import spread
from longform_lab.bounds.compression_error import BEST, ErrorRow
from longform_lab.bounds.monte_carlo import Cell
from longform_lab.bounds.results import ROUNDING, BoundResult
from longform_lab.pictures import colours, literal, number_ticks, picture

PLOTS = "plots"
LOG = {"xscale": "log", "yscale": "log"}
FLOOR = 1e-7  # where a failure that was never seen is drawn
PROVED = {  # events of monte_carlo.EVENTS whose bound follows from the lemma, and their labels
    "row": "one row, one column",
    "map": "any of n rows, one column\n(Theorem 1)",
    "all": "any of n rows, any of d columns\n(Theorem 2's union)",
}
STYLES = {
    BEST: ("black", "o", "-"),
    "E and F, fitted": ("tab:blue", "s", "-"),
    "convolution, fitted": ("tab:green", "^", "-"),
    "mean": ("tab:orange", "D", "-"),
    "random, theorem 1": ("tab:red", "x", "--"),
    "random, theorem 2": ("tab:purple", "+", "--"),
}


def draw_bound(result: BoundResult, output: Path) -> tuple[list[tuple[str, str]], tuple[str, str] | None]:
    """Draw the pictures of ``result`` into ``output``/plots.

    Returns the files of failures, one for each n, and of the error against k, each with what one sees on it.
    """
    failures = []
    verdict = "" if result.broken() else ": all are below the proved bound"
    for length in sorted({cell.length for cell in result.cells}):
        cells = [cell for cell in result.cells if cell.length == length]
        failures.append((f"{PLOTS}/failures-{length}.png", f"failures at n = {length}"))
        title = f"Failures of random projections, n = {length}{verdict}"
        plot_failures(cells, PROVED, title, output / failures[-1][0])
    if not result.errors:
        return failures, None
    error = (f"{PLOTS}/error.png", "error against k, of the map above, of the output below")
    plot_errors(result, output / error[0])
    return failures, error


def plot_failures(cells: Sequence[Cell], events: dict[str, str], title: str, path: Path) -> None:
    """Share of failures against k: one row of panels for each event, one column for each ε.

    ``events``: name of an event -> its label.
    """
    epsilons = sorted({cell.epsilon for cell in cells})
    sources = list(dict.fromkeys(cell.source for cell in cells))  # random and aligned maps, then layers of the model
    by_source = dict(zip(sources, ["0.55", "tab:red", *colours(len(sources))], strict=False))
    size = max(7.6, 1.2 + 3.3 * len(epsilons)), 0.9 + 2.7 * len(events)
    with picture(path, *size, len(events), len(epsilons), sharex=True, sharey=True, squeeze=False) as grid:
        for panels, (event, label) in zip(grid, events.items(), strict=True):
            for axes, epsilon in zip(panels, epsilons, strict=True):
                here = [cell for cell in cells if cell.event == event and cell.epsilon == epsilon]
                _failure_panel(axes, here, by_source)
            panels[0].set_ylabel(f"{label}\n\nshare that fails", fontsize=8)
        _finish(grid, title, [f"ε = {epsilon}" for epsilon in epsilons], "k (slots)", _labelled(grid), columns=5)


def _labelled(grid: Any) -> list[Any]:
    """A line for each label in the panels."""
    handles = {handle.get_label(): handle for axes in grid.flat for handle in axes.get_lines()}
    return [handle for label, handle in handles.items() if not label.startswith("_")]


def _failure_panel(axes: Any, cells: Sequence[Cell], by_source: dict[str, Any]) -> None:
    for source, colour in by_source.items():
        rows = sorted((cell for cell in cells if cell.source == source), key=lambda cell: cell.k)
        failures = [max(row.failure, FLOOR) for row in rows]
        axes.plot([row.k for row in rows], failures, color=colour, marker=".", linewidth=1, label=source)
    bounded = sorted({(cell.k, max(min(cell.bound, 1.0), FLOOR)) for cell in cells if cell.bound is not None})
    if bounded:
        axes.plot(*zip(*bounded, strict=True), color="black", linestyle="--", label="bound, at most 1")
    axes.set(**LOG, ylim=(FLOOR / 2, 2))
    axes.set_yticks([FLOOR, 1e-5, 1e-3, 1e-1, 1], ["0", "10⁻⁵", "10⁻³", "0.1", "1"])
    ks = sorted({cell.k for cell in cells})
    powers_of_four = {4**power for power in range(32)}.intersection(ks)
    number_ticks(axes, sorted(powers_of_four) if len(powers_of_four) > 1 else ks)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)


def plot_errors(result: BoundResult, path: Path) -> None:
    """Error against k, one column of panels for each of at most six layers: of the map above, of the output below."""
    layers = sorted({row.layer for row in result.errors})
    shown = [layers[place] for place in spread(len(layers), 6)]
    size = max(7.6, 1.2 + 3.4 * len(shown)), 7.4
    best = _svd_has_best_output(result)
    below = "nor is any output here (below)" if best else "for the output it is not optimal (below)"
    with picture(path, *size, 2, len(shown), sharex=True, sharey="row", squeeze=False) as grid:
        for panels, error in zip(grid, ("map", "output"), strict=True):
            for axes, layer in zip(panels, shown, strict=True):
                _error_panel(axes, [row for row in result.errors if row.layer == layer], error)
        grid[0][0].set_ylabel("error of the map\n‖P~ - P‖ / ‖P‖")
        grid[1][0].set_ylabel("error of the output\n‖P~V - PV‖ / ‖PV‖")
        title = (
            f"{literal(f'{result.model} on {result.texts}')}, n = {result.errors[0].length}:\n"
            f"no map of rank k is nearer than the SVD's (above), {below}"
        )
        heads = [f"layer {layer + 1}" for layer in shown]
        _finish(grid, title, heads, "k (slots, rank)", grid[0][0].get_lines(), columns=4)


def _svd_has_best_output(result: BoundResult) -> bool:
    """Whether no method's output is nearer to the exact one than the SVD's, in any layer, at any k."""
    best = {(row.layer, row.k): row.output_error for row in result.errors if row.method == BEST}
    return all(row.output_error >= best[row.layer, row.k] - ROUNDING for row in result.errors)


def _error_panel(axes: Any, rows: Iterable[ErrorRow], error: str) -> None:
    rows = [row for row in rows if row.fitted_to in (None, error)]
    for method, (colour, marker, line) in STYLES.items():
        here = sorted((row for row in rows if row.method == method), key=lambda row: row.k)
        values = [getattr(row, f"{error}_error") for row in here]
        axes.plot(
            [row.k for row in here],
            values,
            color=colour,
            marker=marker,
            linestyle=line,
            linewidth=1.4,
            markersize=4.5,
            label=method if method != BEST else "best map of rank k (SVD)",
        )
    axes.axhline(1.0, color="0.6", linewidth=0.8, linestyle=":", label="a map of zeros")
    axes.set(**LOG)
    number_ticks(axes, sorted({row.k for row in rows}))
    axes.grid(alpha=0.25, which="both")


def _finish(grid: Any, title: str, heads: Sequence[str], across: str, handles: Any, *, columns: int) -> None:
    """Titles of the whole and of each column, what is across, and one legend for all panels."""
    for above, below, head in zip(grid[0], grid[-1], heads, strict=True):
        above.set_title(head, fontsize=10)
        below.set_xlabel(across)
    figure = grid[0][0].figure
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)
    figure.suptitle(title, fontsize=11)
