"""The tables of docs/lab/spectrum.md and docs/lab/theory.md."""

from longform_lab.tables.table_kinds import Cells, Rows, Table, pivot

PROJECTIONS = ("mean", "linear", "best of rank k")
CHOICES = (
    "the same everywhere",
    "spectrum, per layer",
    "spectrum, layers reversed",
    "spectrum, per head",
    "least error of a layer",
)
LAST = 6  # the layer of MiniLM that is shown
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


def errors(rows: Rows) -> Cells:
    """Error of the map against k: a row a layer and method."""
    ks = sorted({row["settings"]["k"] for row in rows})
    lines = pivot(
        rows,
        across=lambda row: row["settings"]["k"],
        columns=ks,
        down=lambda row: (row["settings"]["layer"], METHODS.index(row["settings"]["method"])),
        cell=lambda row: f"{row['metrics']['map_error']:.3f}",
    )
    body = [[str(layer), METHODS[method], *cells] for (layer, method), cells in lines]
    return ["layer", "method", *(f"k = {k}" for k in ks)], body


SPECTRUM_TABLES: dict[str, Table] = {
    "spectrum_k": Table(make=choices, records="spectrum_k"),
    "bound_map_errors": Table(make=errors, records="bound_errors", where={"settings.layer": LAST}),
}
