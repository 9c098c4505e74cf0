"""Pictures of docs/, drawn from the records into docs/pictures.

::

    python -m longform_lab.tables.draw

A point of the frontier is a reading of whole documents (records/documents.jsonl) and a model of long_retrieval that is
read so: the original over chunks, as it is and aligned, whatever the runtime; the Longform of the reading's name; or
another of the same attention, which costs the same (``ALSO_SO``).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longform_lab.pictures import finish, number_ticks, picture
from longform_lab.records import RECORDS, ROOT, Record, read_records
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.plots import plot_memory, plot_times
from longform_lab.tables.gpu_tables import GPU_TABLES, place
from longform_lab.tables.long_retrieval_tables import CHUNKS
from longform_lab.tables.speed_shapes import PICTURES, is_standard
from longform_lab.tables.speed_tables import speed
from longform_lab.tables.table_kinds import plain_tables
from longform_lab.tables.write import chosen_rows

KINDS: dict[str, tuple[str, str, Callable[..., None], str]] = {
    "speed-time.png": ("base", "seconds", plot_times, "Seconds of a pass against length"),
    "speed-memory.png": ("minilm", "peak_mib", plot_memory, "Memory of a pass against length"),
}
SHAPES = {"base": "12 layers x 768", "minilm": "6 layers x 384"}
FRONTIER, DATA = "frontier.png", "qmsum-val"
ALIGNED_CHUNKS = "original aligned on meetings, chunks averaged"
TRAINED_CHUNKS = "original trained as minilm-16k, chunks averaged"
ALSO_SO = {  # Longforms of other weights that are read as a conversion is
    "window 64": ("minilm-16k", "minilm-meetings"),
    "pure mean": ("minilm-mean-256",),
}
MARKS = "so^DvPX*<>"  # of models, in turn
Point = tuple[str, str]  # a model, and what runs it


def chosen(records: Sequence[Record], size: str, metric: str) -> list[Record]:
    """The latest record with the metric of each length and competitor: inference, one text, bfloat16, k = 256 (n / 2).

    Variants of ours that have a table of their own are left out, and what another machine measured.
    """
    definition = replace(speed(metric, "", size=size), one_machine=True)
    return [Record(**row) for row in chosen_rows(definition, records) if is_standard(row["settings"])]


def draw_speed(records: Sequence[Record], folder: Path) -> list[Path]:
    """The pictures for which something was measured at two lengths or more."""
    made = []
    for name, (size, metric, plot, said) in KINDS.items():
        rows = chosen(records, size, metric)
        if len({record.settings["length"] for record in rows}) < 2:
            continue
        hardware = rows[-1].hardware
        machine = f"{SHAPES[size]}, bfloat16, one text, {hardware['cpu']}, {hardware['threads']} threads"
        plot(rows, all_competitors(), f"{said}\n{machine}", folder / name)
        made.append(folder / name)
    return made


def points(records: Sequence[Record], *, data: str = DATA, threads: int = 1) -> dict[Point, tuple[float, float]]:
    """Documents a second and nDCG@10 of each model and runtime that have both; of several records the latest."""
    quality: dict[str, Any] = {
        record.settings["contender"]: record.metrics["ndcg_at_10"]
        for record in records
        if record.name == "long_retrieval" and record.settings["data"] == data
    }
    found: dict[Point, Any] = {}
    for record in records:
        if record.name != "documents" or record.settings["threads"] != threads or record.metrics["missing"]:
            continue
        models, runtime = read_by(record.settings["reading"])
        for model in quality.keys() & models:
            found[model, runtime] = (record.metrics["documents_per_second"], quality[model])
    return found


def read_by(reading: str) -> tuple[set[str], str]:
    """The models that are read so, and what runs them: "Longform, pure mean, float32" -> {"pure mean",
    "minilm-mean-256"}, "Longform float32".
    """
    if reading.startswith("chunks, "):
        return {CHUNKS, ALIGNED_CHUNKS, TRAINED_CHUNKS}, reading.removeprefix("chunks, ")
    model, dtype = reading.split(", ", 1)[1].rsplit(", ", 1)
    return {model, *ALSO_SO.get(model, ())}, f"Longform {dtype}"


def draw_frontier(records: Sequence[Record], folder: Path, *, data: str = DATA, threads: int = 1) -> list[Path]:
    """Quality against speed, a shape a model, a colour a runtime; no picture where nothing has both numbers."""
    found = points(records, data=data, threads=threads)
    if not found:
        return []
    models = {model: MARKS[place % len(MARKS)] for place, model in enumerate(sorted({model for model, _ in found}))}
    runtimes = {name: f"C{place}" for place, name in enumerate(sorted({runtime for _, runtime in found}))}
    with picture(folder / FRONTIER, 9.5, 5.0) as axes:
        for (model, runtime), place in found.items():
            axes.plot(*([x] for x in place), models[model], color=runtimes[runtime], markersize=9)
        for model, mark in models.items():
            axes.plot([], [], mark, color="black", label=model)
        for runtime, colour in runtimes.items():
            axes.plot([], [], "s", color=colour, label=runtime, markersize=11)
        beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
        title = f"{data}, {threads} thread{'s' * (threads > 1)}: up and to the right is better"
        finish(axes, title, "documents a second", "nDCG@10 x 100", legend=beside)
    return [folder / FRONTIER]


def draw_gpu(records: Sequence[Record], folder: Path) -> list[Path]:
    """Milliseconds of a captured pass of one text against its tokens on a GPU, and eager ones thin."""
    rows = [row for row in chosen_rows(GPU_TABLES["gpu_inference"], records) if row["settings"]["batch"] == 1]
    if not rows:
        return []
    with picture(folder / "gpu-time.png", 7.0, 5.0) as axes:
        for colour, name in enumerate(("full attention", "lucidrains", "linear, layerwise", "weighted mean", "window")):
            own = sorted((row for row in rows if row["settings"]["competitor"] == name), key=place)
            for key, style, label in (("graph_ms", "o-", name), ("eager_ms", ":", "")):
                times = [(place(row)[0], row["metrics"][key]) for row in own if key in row["metrics"]]
                axes.plot(*zip(*times, strict=True), style, color=f"C{colour}", label=label)
        title = f"A pass of base size, {rows[0]['hardware']['gpu']}, as a graph; dotted: eager"
        finish(axes, title, "tokens", "ms", xscale="log", yscale="log")
        number_ticks(axes, sorted({place(row)[0] for row in rows}))
    return [folder / "gpu-time.png"]


def draw_selection(records: Sequence[Record], folder: Path) -> list[Path]:
    """Distance from full attention against the milliseconds of a pass, a colour a length, selection filled."""
    rows = chosen_rows(plain_tables()["selection_fidelity"], records)
    if not rows:
        return []
    with picture(folder / "selection.png", 7.5, 5.0) as axes:
        for colour, length in enumerate(sorted({row["settings"]["length"] for row in rows})):
            for row in (row for row in rows if row["settings"]["length"] == length):
                settings, metrics = row["settings"], row["metrics"]
                place = 1000 * metrics["seconds"], 1 - metrics["token_cosine"]
                filled = f"C{colour}" if settings["selected_slots"] else "none"
                axes.plot(*place, "o", color=f"C{colour}", markerfacecolor=filled)
                said = f"{settings['window']}, {settings['tokens_per_slot']}, {settings['selected_slots']}"
                axes.annotate(said, place, xytext=(4, 3), textcoords="offset points", fontsize=7)
            axes.axvline(1000 * metrics["full_attention_seconds"], color=f"C{colour}", linestyle=":", alpha=0.6)
            axes.plot([], [], "o", color=f"C{colour}", label=f"{length:,} tokens")
        title = "Window, tokens a slot, selected slots (filled: some); dotted: full attention"
        finish(axes, title, "ms of a pass", "1 - cosine to full attention", xscale="log", yscale="log")
    return [folder / "selection.png"]


def main() -> None:
    """Draw, and say what."""
    records = read_records(sorted(RECORDS.glob("*.jsonl")))
    for draw in (draw_speed, draw_frontier, draw_gpu, draw_selection):
        for path in draw(records, PICTURES):
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
