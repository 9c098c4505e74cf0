"""The table of whole documents read end to end: tokens a second of each reading, with one thread and with two."""

from longform_lab.tables.table_kinds import ComputedTable, Rows

FAST = "chunks, transformers float32"


def by_threads(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A line a reading, columns for each number of threads."""
    threads = sorted({row["settings"]["threads"] for row in rows})
    said = ["1 thread" if count == 1 else f"{count} threads" for count in threads]
    heads = ["reading", *(head for each in said for head in (f"tokens/s, {each}", f"x {FAST}, {each}"))]
    cells: dict[str, dict[int, tuple[str, str]]] = {}
    for row in rows:
        metrics, settings = row["metrics"], row["settings"]
        found = (
            (metrics["missing"], "")
            if metrics["missing"]
            else (f"{metrics['tokens_per_second']:,.0f}", f"{metrics['against_chunks']:.2f}")
        )
        cells.setdefault(settings["reading"], {})[settings["threads"]] = found
    body = [
        [reading, *(cell for count in threads for cell in found.get(count, ("", "")))]
        for reading, found in cells.items()
    ]
    return heads, body


DOCUMENT_TABLES = {
    "documents": ComputedTable(make=by_threads, records="documents", row=("settings.reading", "settings.threads"))
}
