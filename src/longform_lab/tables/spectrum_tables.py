"""The tables of docs/lab/spectrum.md and docs/lab/theory.md."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from longform_lab.tables.table_kinds import Column, ComputedTable, Rows, TableDefinition

MISSING = "–"
PROJECTIONS = ("mean", "linear", "best of rank k")
CHOICES = (
    "the same everywhere",
    "spectrum, per layer",
    "spectrum, layers reversed",
    "spectrum, per head",
    "least error of a layer",
)
PAIRS = {"inside": "most alike, in one layer", "across": "most alike, in any layer", "random": "any two in one layer"}
SAID = {
    "row": "one row, one column",
    "map": "any of n rows, one column (Theorem 1)",
    "all": "any of n rows, any of d columns (Theorem 2's union)",
    "vector": "one row, the d columns together",
    "construction": "the same with softmax, E = δR and F = exp(-δ)R (Theorem 2 as constructed)",
    "literal": "Theorem 1 as printed, relative to ‖P w‖",
}
METHODS = ("SVD", "E and F, fitted", "convolution, fitted", "mean", "random, theorem 1", "random, theorem 2")


def pivot(
    rows: Rows,
    *,
    across: Callable[[Any], Any],
    down: Callable[[Any], Any],
    cell: Callable[[Any], str],
    columns: Sequence[Any],
) -> list[tuple[Any, list[str]]]:
    """Cells of ``rows``: a line for each value of ``down``, sorted, with a cell for each of ``columns``."""
    cells = {(down(row), across(row)): cell(row) for row in rows}
    lines = sorted({place for place, _ in cells})
    return [(line, [cells.get((line, column), MISSING) for column in columns]) for line in lines]


def choices(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Cosine for each way to share a total out: a row a projection and total."""
    lines = pivot(
        rows,
        across=lambda row: row["settings"]["choice"],
        columns=CHOICES,
        down=lambda row: (
            PROJECTIONS.index(row["settings"]["projection"]),
            row["settings"]["sinks"],
            -row["settings"]["uniform"],
            row["settings"]["documents"],
        ),
        cell=lambda row: f"{row['metrics']['cosine']:.3f}",
    )
    body = [
        [PROJECTIONS[kind], str(sinks), str(-uniform), str(articles), *cells]
        for (kind, sinks, uniform, articles), cells in lines
    ]
    return ["projection", "sinks", "k a layer, on average", "articles", *CHOICES], body


def sharing(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Cosine and error when heads share maps: a row a number of heads."""
    found = {}
    for metric in ("cosine", "error"):
        found[metric] = pivot(
            rows,
            across=lambda row: row["settings"]["pairs"],
            columns=list(PAIRS),
            down=lambda row: (row["settings"]["replaced"], row["metrics"]["share"]),
            cell=lambda row, metric=metric: f"{row['metrics'][metric]:.3f}",
        )
    body = [
        [f"{replaced} ({share:.0%})", *(f"{cosine} ({error})" for cosine, error in zip(cosines, errors, strict=True))]
        for ((replaced, share), cosines), (_, errors) in zip(found["cosine"], found["error"], strict=True)
    ]
    return ["heads that use another's map", *PAIRS.values()], body


def kept(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Smaller models: a row a number of heads and way to choose them."""
    times = [row for row in rows if "milliseconds" in row["metrics"]]
    scored = [row for row in rows if "sts_spearman" in row["metrics"]]
    healed = sorted({row["settings"]["healed_tokens"] for row in scored} - {0})
    stages = pivot(
        scored,
        across=lambda row: row["settings"]["healed_tokens"],
        columns=[0, *healed],
        down=lambda row: (-row["settings"]["kept"], row["settings"]["left_out"], row["metrics"]["parameters"]),
        cell=lambda row: f"{row['metrics']['sts_spearman']:.1f} ({row['metrics']['cosine']:.3f})",
    )
    lengths = sorted({row["settings"]["tokens"] for row in times})
    taken = pivot(
        times,
        across=lambda row: row["settings"]["tokens"],
        columns=lengths,
        down=lambda row: -row["settings"]["kept"],
        cell=lambda row: f"{row['metrics']['milliseconds']:.1f}",
    )
    body = [
        [str(-heads), left_out, f"{parameters / 1e6:.2f} M", *scores, *dict(taken).get(heads, [MISSING] * len(lengths))]
        for (heads, left_out, parameters), scores in stages
    ]
    return [
        "heads a layer",
        "left out",
        "parameters",
        "STS-B dev as converted (cosine to the original)",
        *(f"healed on {tokens:,} tokens" for tokens in healed),
        *(f"CPU ms, {length:,} tokens" for length in lengths),
    ], body


def trials(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """How often a bound below 1 was kept: a row a kind of failure and of maps."""
    body = []
    for row in sorted(rows, key=lambda row: (list(SAID).index(row["settings"]["event"]), row["settings"]["maps"])):
        metrics = row["metrics"]
        bounded = metrics["judged"] is not None
        body.append(
            [
                SAID[row["settings"]["event"]],
                "MiniLM's" if row["settings"]["maps"] == "captured" else "made",
                str(metrics["judged"]) if bounded else "no bound",
                str(metrics["failing"]) if bounded else MISSING,
                str(metrics["broken"]) if bounded else MISSING,
                MISSING if metrics["highest_ratio"] is None else f"{metrics['highest_ratio']:.3g}",
            ]
        )
    return [
        "what fails",
        "maps",
        "cells with a bound below 1",
        "of them with failures",
        "of them above the bound",
        "highest share of failures / bound",
    ], body


def errors(rows: Rows, *, metric: str) -> tuple[list[str], list[list[str]]]:
    """Error against k: a row a layer and method."""
    ks = sorted({row["settings"]["k"] for row in rows})
    lines = pivot(
        rows,
        across=lambda row: row["settings"]["k"],
        columns=ks,
        down=lambda row: (row["settings"]["layer"], METHODS.index(row["settings"]["method"])),
        cell=lambda row: f"{row['metrics'][metric]:.3f}",
    )
    body = [[str(layer), METHODS[method], *cells] for (layer, method), cells in lines]
    return ["layer", "method", *(f"k = {k}" for k in ks)], body


SPECTRUM_TABLES: dict[str, TableDefinition | ComputedTable] = {
    "spectrum": TableDefinition(
        columns=(
            Column(header="texts", value="settings.texts", form="d"),
            Column(header="tokens of each", value="settings.tokens", form="d"),
            Column(header="maps", value="metrics.maps", form=",d"),
            Column(header="seconds", value="metrics.seconds", form=".0f"),
            Column(header="CPU seconds", value="metrics.cpu_seconds", form=".0f"),
            Column(header="largest difference to numpy's float64 SVD", value="metrics.largest_difference", form=".1e"),
            Column(header="peak memory with 20 texts, MiB", value="metrics.peak_mib_few", form=",.0f"),
            Column(header="with 100", value="metrics.peak_mib_many", form=",.0f"),
        )
    ),
    "spectrum_layers": TableDefinition(
        columns=(
            Column(header="layer", value="settings.layer", form="d"),
            Column(header="share of 64", value="metrics.share_64", form=".1%"),
            Column(header="of 128", value="metrics.share_128", form=".1%"),
            Column(header="of 256", value="metrics.share_256", form=".1%"),
            Column(header="of 128, lowest head", value="metrics.lowest_head", form=".0%"),
            Column(header="highest head", value="metrics.highest_head", form=".0%"),
            Column(header="effective rank", value="metrics.effective_rank", form=".0f"),
            Column(header="k for 90 %", value="metrics.k_90", form="d"),
            Column(header="cosine of two heads' maps", value="metrics.alike", form=".2f"),
        ),
        order=("settings.layer",),
    ),
    "spectrum_k": ComputedTable(make=choices, records="spectrum_k"),
    "head_sharing": ComputedTable(make=sharing, records="head_sharing"),
    "kept_heads": ComputedTable(make=kept, records=("kept_heads", "kept_heads_time"), row=("name", "settings")),
    "bound_trials": ComputedTable(make=trials, records="bound_trials"),
    "bound_map_errors": ComputedTable(make=partial(errors, metric="map_error"), records="bound_errors"),
    "bound_output_errors": ComputedTable(make=partial(errors, metric="output_error"), records="bound_errors"),
}
