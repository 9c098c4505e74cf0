"""The tables of docs/lab/spectrum.md and docs/lab/theory.md."""

from functools import partial

from longform_lab.bounds.report import SAID
from longform_lab.tables.table_kinds import MISSING, Cells, Rows, Table, pivot

PROJECTIONS = ("mean", "linear", "best of rank k")
CHOICES = (
    "the same everywhere",
    "spectrum, per layer",
    "spectrum, layers reversed",
    "spectrum, per head",
    "least error of a layer",
)
PAIRS = {"inside": "most alike, in one layer", "across": "most alike, in any layer", "random": "any two in one layer"}
METHODS = ("SVD", "E and F, fitted", "convolution, fitted", "mean", "random, theorem 1", "random, theorem 2")


def choices(rows: Rows) -> Cells:
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


def sharing(rows: Rows) -> Cells:
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


def kept(rows: Rows) -> Cells:
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


def trials(rows: Rows) -> Cells:
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


def errors(rows: Rows, *, metric: str) -> Cells:
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


SPECTRUM_TABLES: dict[str, Table] = {
    "spectrum_k": Table(make=choices, records="spectrum_k"),
    "head_sharing": Table(make=sharing, records="head_sharing"),
    "kept_heads": Table(make=kept, records=("kept_heads", "kept_heads_time"), row=("name", "settings")),
    "bound_trials": Table(make=trials, records="bound_trials"),
    "bound_map_errors": Table(make=partial(errors, metric="map_error"), records="bound_errors"),
    "bound_output_errors": Table(make=partial(errors, metric="output_error"), records="bound_errors"),
}
