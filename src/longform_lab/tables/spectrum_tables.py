"""The tables of docs/lab/spectrum.md and docs/lab/theory.md."""

from longform_lab.tables.table_kinds import Cells, Rows, Table, pivot

LAST = 6  # the layer of MiniLM that is shown
METHODS = ("SVD", "E and F, fitted", "mean", "random, theorem 1")  # others are in the records


def errors(rows: Rows) -> Cells:
    """Error of the map against k: a row a method."""
    ks = sorted({row["settings"]["k"] for row in rows})
    lines = pivot(
        rows,
        across=lambda row: row["settings"]["k"],
        columns=ks,
        down=lambda row: METHODS.index(row["settings"]["method"]),
        cell=lambda row: f"{row['metrics']['map_error']:.3f}",
    )
    return ["method", *(f"k = {k}" for k in ks)], [[METHODS[method], *cells] for method, cells in lines]


SPECTRUM_TABLES: dict[str, Table] = {
    "bound_map_errors": Table(
        make=errors, records="bound_errors", where={"settings.layer": LAST, "settings.method": METHODS}
    ),
}
