"""Time and memory against length, drawn from records into docs/pictures.

::

    python -m longform_lab.tables.speed_pictures
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from longform_lab.records import RECORDS, ROOT, Record, read_records
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.plots import plot_memory, plot_times
from longform_lab.tables.speed_shapes import PICTURES, is_standard
from longform_lab.tables.speed_tables import speed
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
    return [Record(**row) for row in chosen_rows(metric, definition, records) if is_standard(row["settings"])]


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """The pictures for which something was measured at two lengths or more."""
    made = []
    for name, (size, metric, plot, said) in KINDS.items():
        rows = chosen(records, size, metric)
        if len({record.settings["length"] for record in rows}) < 2:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        hardware = rows[-1].hardware
        machine = f"{SHAPES[size]}, bfloat16, one text, {hardware['cpu']}, {hardware['threads']} threads"
        plot(rows, all_competitors(), f"{said}\n{machine}", folder / name)
        made.append(folder / name)
    return made


def main() -> None:
    """Draw, and say what."""
    for path in draw(read_records(sorted(RECORDS.glob("speed*.jsonl"))), PICTURES):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
