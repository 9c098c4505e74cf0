"""Pictures of docs/, drawn from the records into docs/pictures.

::

    python -m longform_lab.tables.draw
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from longform_lab.pictures import finish, picture
from longform_lab.records import RECORDS, ROOT, Record, read_records
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.plots import plot_memory, plot_times
from longform_lab.tables.gpu_tables import GPU_TABLES, place
from longform_lab.tables.point_tables import draw_points
from longform_lab.tables.speed_shapes import PICTURES, is_standard
from longform_lab.tables.speed_tables import speed
from longform_lab.tables.table_kinds import plain_tables
from longform_lab.tables.write import chosen_rows

KINDS: dict[str, tuple[str, str, Callable[..., None], str]] = {
    "speed-time.png": ("base", "seconds", plot_times, "Seconds of a pass against length"),
    "speed-memory.png": ("minilm", "peak_mib", plot_memory, "Memory of a pass against length"),
}
SHAPES = {"base": "12 layers x 768", "minilm": "6 layers x 384"}


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
        axes.set_xscale("log", base=2)
    return [folder / "gpu-time.png"]


def draw_selection(records: Sequence[Record], folder: Path) -> list[Path]:
    """Distance from full attention against the milliseconds of a pass, a colour a length, selection filled."""
    rows = chosen_rows(replace(plain_tables()["selection_fidelity"], where={}), records)
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
    for draw in (draw_speed, draw_gpu, draw_selection, draw_points):
        for path in draw(records, PICTURES):
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
