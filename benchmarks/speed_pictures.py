"""Time and memory against length, drawn from records into docs/pictures.

::

    python -m benchmarks.speed_pictures
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mode
from typing import Any

from benchmarks.records import RECORDS, ROOT, Record, read_records
from benchmarks.speed_shapes import PICTURES, is_standard
from benchmarks.speed_tables import SHOWN, SPEED
from longform.benchmarking.competitors import all_competitors
from longform.benchmarking.plots import plot_memory, plot_times

KINDS: dict[str, tuple[str, str, Callable[..., None], str]] = {
    "speed-time.png": ("base", "seconds", plot_times, "Seconds of a pass against length"),
    "speed-memory.png": ("minilm", "peak_mib", plot_memory, "Memory of a pass against length"),
}
SHAPES = {"base": "12 layers x 768", "minilm": "6 layers x 384"}


def chosen(records: Sequence[Record], size: str, metric: str) -> list[Record]:
    """The latest record with the metric of each length and competitor: inference, one text, bfloat16, k = 256 (n / 2).

    Variants of ours that have a table of their own are left out.
    """
    wanted: dict[str, Any] = {path.partition(".")[2]: value for path, value in SPEED.items()}
    wanted |= {"size": size, "work": "inference"}
    found: dict[tuple[int, str], Record] = {}
    for record in sorted(records, key=lambda record: record.date):
        settings = record.settings
        if record.name != "speed" or any(settings.get(name) != value for name, value in wanted.items()):
            continue
        if is_standard(settings) and settings["competitor"] in SHOWN and record.metrics.get(metric) is not None:
            found[settings["length"], settings["competitor"]] = record
    return of_one_machine(list(found.values()))


def of_one_machine(records: list[Record]) -> list[Record]:
    """Those of the processor and number of threads that most of them have: others' seconds do not compare."""
    machines = [(record.hardware["cpu"], record.hardware["threads"]) for record in records]
    usual = mode(machines) if machines else None
    return [record for record, machine in zip(records, machines, strict=True) if machine == usual]


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
    for path in draw(read_records(sorted(RECORDS.glob("speed.jsonl"))), PICTURES):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
