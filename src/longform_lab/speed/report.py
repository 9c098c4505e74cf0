"""The report of a benchmark run, with its pictures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.pretrained.model_card import Table
from longform_lab.records import Record, provenance
from longform_lab.report import Report, Section, listed, write_report
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.paper_table import paper_rows
from longform_lab.speed.plots import plot_memory, plot_times

DASH = "–"
SERIES = ("size", "work", "dtype", "mode", "device", "threads")
COLUMNS = (
    ("ms", "seconds", lambda value: f"{1_000 * value:,.1f}"),
    ("spread", "spread", lambda value: f"{value:.1%}"),
    ("x SDPA", "against_sdpa", lambda value: f"{value:.2f}"),
    ("tokens/s", "tokens_per_second", lambda value: f"{value:,.0f}"),
    ("peak MiB", "peak_mib", lambda value: f"{value:,.0f}"),
    ("rounds", "repeats", str),
)
READING = (
    "Each row is the median over rounds in which all competitors of a cell took turns in one process, after their "
    "outputs were checked. x SDPA: how many times faster than full attention through scaled_dot_product_attention in "
    "the same code. Peak: memory of a pass above the loaded model, measured in another process. Spread: distance "
    "between the quartiles over the median."
)


def report_benchmark(
    records: Sequence[Record], competitors: Mapping[str, Competitor], output: Path, settings: Mapping[str, Any]
) -> None:
    """Write the pictures and the report into ``output``."""
    sections = series_sections(records, competitors, output)
    paper = paper_table(records)
    if paper.rows:
        said = "The paper's Table 3: how many times faster than unfused attention, and the ratio of largest batches"
        sections.append(Section(said, paper))
    foot = f"{provenance(list(map(vars, records)))} {listed(settings)}."
    write_report(output, Report("Time and memory", [READING], sections, foot=foot))


def series_sections(records: Sequence[Record], competitors: Mapping[str, Competitor], output: Path) -> list[Section]:
    """A table and two pictures, drawn into ``output``, for each series."""
    return [
        Section(title_of(series), series_table(rows, competitors), _pictures(series, rows, competitors, output))
        for series, rows in series_of(records).items()
    ]


def series_of(records: Iterable[Record]) -> dict[tuple[Any, ...], list[Record]]:
    """Records that differ only in length, batch, k and competitor; batch 1 and larger ones apart."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        series = (*(record.settings[name] for name in SERIES), record.settings["batch"] > 1)
        found.setdefault(series, []).append(record)
    return found


def title_of(series: tuple[Any, ...]) -> str:
    """A series in words."""
    size, work, dtype, mode, device, threads, batches = series
    kind = "training step" if work == "train" else "inference"
    place = f"{threads} threads" if device == "cpu" else device
    texts = "batches" if batches else "one text"
    return f"{size}, {kind}, {dtype}, {mode}, {texts}, {place}"


def series_table(records: Sequence[Record], competitors: Mapping[str, Competitor]) -> Table:
    """A row a length, k and competitor, in that order; a row without a time says why."""
    order = list(competitors)

    def rank(record: Record) -> tuple[int, ...]:
        settings = record.settings
        return settings["length"], settings["batch"], settings["slots"], order.index(settings["competitor"])

    header = ["n", "competitor", "k", "texts", *(head for head, _, _ in COLUMNS)]
    rows = []
    for record in sorted(records, key=rank):
        settings, metrics = record.settings, record.metrics
        competitor = competitors[settings["competitor"]]
        why = f" ({metrics['missing']})" if metrics["missing"] else ""
        values = [DASH if metrics.get(name) is None else form(metrics[name]) for _, name, form in COLUMNS]
        slots = metrics.get("window_slots", settings["slots"] if competitor.has_slots else DASH)
        rows.append([f"{settings['length']:,}", competitor.label + why, str(slots), str(settings["batch"]), *values])
    return Table(header, rows, 2)


def paper_table(records: Iterable[Record]) -> Table:
    """The paper's cells beside ours."""
    header = ["n", "k", "texts", "size", "time", "paper", "met", "memory", "paper", "met"]
    rows = []
    for row in paper_rows(records):
        cells = [f"{row['n']:,}", str(row["k"]), str(row["batch"]), f"{row['size']}, {row['dtype']}"]
        for what in ("time", "memory"):
            ours, paper = row[what], row[f"paper_{what}"]
            shown = [DASH, DASH] if ours is None else [f"{ours:.2f}", "yes" if ours >= paper else "no"]
            cells += [shown[0], f"{paper:g}", shown[1]]
        rows.append(cells)
    return Table(header, rows, 0)


def _pictures(
    series: tuple[Any, ...], records: Sequence[Record], competitors: Mapping[str, Competitor], output: Path
) -> list[tuple[str, str]]:
    name = "-".join(str(part) for part in series[:-1]) + ("-batches" if series[-1] else "")
    slots = max({record.settings["slots"] for record in records}, default=0)
    found = []
    for what, plot in (("time", plot_times), ("memory", plot_memory)):
        file = f"{what}-{name}.png"
        plot(
            records, competitors, f"{what} of a pass against length\n{title_of(series)}, k up to {slots}", output / file
        )
        found.append((file, f"{what} of a pass against the tokens of a text, {title_of(series)}"))
    return found
