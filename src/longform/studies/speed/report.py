"""What a run shows: ``tables.md``, pictures, and ``report.html`` with all of it inside."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from longform.data.text import atomic_write
from longform.runs.pictures import inline_picture
from longform.runs.records import Record
from longform.studies.speed.competitor import Competitor
from longform.studies.speed.paper_table import met, paper_rows
from longform.studies.speed.plots import plot_memory, plot_times

DASH = "–"
SERIES = ("size", "work", "dtype", "mode", "device", "threads")
COLUMNS = (
    ("ms", "seconds", lambda value: f"{1_000 * value:,.1f}"),
    ("spread", "spread", lambda value: f"{value:.1%}"),
    ("x SDPA", "against_sdpa", lambda value: f"{value:.2f}"),
    ("/ floor", "against_floor", lambda value: f"{value:.2f}"),
    ("tokens/s", "tokens_per_second", lambda value: f"{value:,.0f}"),
    ("peak MiB", "peak_mib", lambda value: f"{value:,.0f}"),
    ("rounds", "repeats", str),
    ("GFLOP", "operations", lambda value: f"{value / 1e9:,.4g}"),
    ("MB", "bytes", lambda value: f"{value / 1e6:,.4g}"),
)
STYLE = """
body { margin:0 auto; max-width:1080px; padding:32px 24px 64px; color:#1c2330; background:#fff;
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
h1 { font-size:30px; margin:0 0 6px; } h2 { font-size:22px; margin:44px 0 8px; }
p { max-width:80ch; } table { border-collapse:collapse; font-size:14px; font-variant-numeric:tabular-nums; }
th,td { padding:4px 10px; border-bottom:1px solid #e3e7ed; text-align:right; } th { color:#5d6879; font-weight:600; }
td:nth-child(2) { text-align:left; } img { max-width:100%; height:auto; }
.soft { color:#5d6879; } .wide { overflow-x:auto; }
"""
READING = (
    "Each row is the median over rounds in which all competitors of a cell took turns in one process, after their "
    "outputs were checked. x SDPA: how many times faster than full attention through scaled_dot_product_attention in "
    "the same code. / floor: time over that of the row's matrix products and attention calls alone (for architectures "
    "other than Linformer and full attention: those of Longform with its window). Peak: memory of a pass above the "
    "loaded model, measured in another process. Spread: distance between the quartiles over the median. GFLOP and MB: "
    "operations of matrix products and attention, and bytes of weights and hidden states, that a pass cannot avoid; "
    "they are counted, not measured."
)

Table = tuple[list[str], list[list[str]]]


def write_report(
    records: Sequence[Record], competitors: Mapping[str, Competitor], output: Path, settings: Mapping[str, Any]
) -> None:
    """Write ``tables.md``, the pictures and ``report.html`` into ``output``."""
    markdown, page = ["# Time and memory\n", READING], [f"<h1>Time and memory</h1><p>{escape(READING)}</p>"]
    for series, rows in series_of(records).items():
        title = title_of(series)
        table = series_table(rows, competitors)
        markdown.append(f"\n## {title}\n\n{markdown_table(*table)}")
        page.append(f"<h2>{escape(title)}</h2>{_pictures(series, rows, competitors, output)}{_html_table(*table)}")
    paper = paper_table(records)
    if paper[1]:
        said = "The paper's Table 3: how many times faster than unfused attention, and the ratio of largest batches"
        markdown.append(f"\n## {said}\n\n{markdown_table(*paper)}")
        page.append(f"<h2>{said}</h2>{_html_table(*paper)}")
    foot = provenance(records, settings)
    with atomic_write(output / "tables.md") as file:
        file.write("\n".join([*markdown, f"\n{foot}\n"]))
    with atomic_write(output / "report.html") as file:
        file.write(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width,initial-scale=1"><title>Longform benchmark</title><style>{STYLE}</style>'
            f'</head><body>{"".join(page)}<p class="soft">{escape(foot)}</p></body></html>\n'
        )


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
        label = competitors[settings["competitor"]].label
        if metrics["missing"]:
            label += f" ({metrics['missing']})"
        values = [
            DASH if metrics.get(name) is None else form(metrics[name]) for _, name, form in COLUMNS
        ]  # fmt: skip
        slots = metrics.get("window_slots", settings["slots"])
        rows.append([f"{settings['length']:,}", label, str(slots), str(settings["batch"]), *values])
    return header, rows


def paper_table(records: Iterable[Record]) -> Table:
    """The paper's cells beside ours."""
    header = ["n", "k", "texts", "size", "time", "paper", "met", "memory", "paper", "met"]
    rows = []
    for row in paper_rows(records):
        shown = [DASH if row[name] is None else f"{row[name]:.2f}" for name in ("time", "memory")]
        rows.append(
            [
                f"{row['n']:,}", str(row["k"]), str(row["batch"]), f"{row['size']}, {row['dtype']}",
                f"{shown[0]}", f"{row['paper_time']:g}", met(row, "time"),
                f"{shown[1]}", f"{row['paper_memory']:g}", met(row, "memory"),
            ]
        )  # fmt: skip
    return header, rows


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    lines = [header, ["---:"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def provenance(records: Sequence[Record], settings: Mapping[str, Any]) -> str:
    """On what machine, with what versions, from what code, with what settings."""
    facts = dict.fromkeys(
        f"{record.hardware['gpu'] or record.hardware['cpu']}, {record.hardware['threads']} threads, torch "
        f"{record.versions['torch']}, transformers {record.versions['transformers']}, code {record.commit} of "
        f"{record.date[:10]}"
        for record in records
    )
    return f"Measured on {'; '.join(facts)}. {', '.join(f'{name} {value}' for name, value in settings.items())}."


def _pictures(
    series: tuple[Any, ...], records: Sequence[Record], competitors: Mapping[str, Competitor], output: Path
) -> str:
    name = "-".join(str(part) for part in series[:-1]) + ("-batches" if series[-1] else "")
    shown = []
    slots = max({record.settings["slots"] for record in records}, default=0)
    for what, plot in (("time", plot_times), ("memory", plot_memory)):
        path = output / f"{what}-{name}.png"
        plot(records, competitors, f"{what} of a pass against length\n{title_of(series)}, k up to {slots}", path)
        shown.append(inline_picture(path, said=f"{what} of a pass against the tokens of a text, {title_of(series)}"))
    return "".join(shown)


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'
