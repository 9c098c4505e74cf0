"""Quality against speed: nDCG@10 of each contender over the documents that it reads in a second, from the records.

::

    python -m longform_lab.tables.frontier_picture

A point is a reading of ``longform benchmark --preset documents`` and a model of long_retrieval that is read so: the
original over chunks, as it is and aligned, whatever the runtime; or the Longform of the reading's name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longform_lab.pictures import finish, picture
from longform_lab.records import RECORDS, ROOT, Record, read_records
from longform_lab.tables.long_retrieval_tables import CHUNKS

PICTURE = ROOT / "docs" / "pictures" / "frontier.png"
DATA = "qmsum-val"
ALIGNED_CHUNKS = "original aligned on meetings, chunks averaged"
MARKS = "so^DvPX*<>"  # of models, in turn
Point = tuple[str, str]  # a model, and what runs it


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
    """The models that are read so, and what runs them: "Longform, window 64, float32" -> {"window 64"}, "Longform
    float32".
    """
    if reading.startswith("chunks, "):
        return {CHUNKS, ALIGNED_CHUNKS}, reading.removeprefix("chunks, ")
    model, dtype = reading.split(", ", 1)[1].rsplit(", ", 1)
    return {model}, f"Longform {dtype}"


def draw(records: Sequence[Record], path: Path, *, data: str = DATA, threads: int = 1) -> bool:
    """The picture: a shape a model, a colour a runtime. False where nothing has both numbers."""
    found = points(records, data=data, threads=threads)
    if not found:
        return False
    models = {model: MARKS[place % len(MARKS)] for place, model in enumerate(sorted({model for model, _ in found}))}
    runtimes = {name: f"C{place}" for place, name in enumerate(sorted({runtime for _, runtime in found}))}
    with picture(path, 9.5, 5.0) as axes:
        for (model, runtime), place in found.items():
            axes.plot(*([x] for x in place), models[model], color=runtimes[runtime], markersize=9)
        for model, mark in models.items():
            axes.plot([], [], mark, color="black", label=model)
        for runtime, colour in runtimes.items():
            axes.plot([], [], "s", color=colour, label=runtime, markersize=11)
        beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
        title = f"{data}, {threads} thread{'s' * (threads > 1)}: up and to the right is better"
        finish(axes, title, "documents a second", "nDCG@10 x 100", legend=beside)
    return True


def main() -> None:
    """Draw, and say what."""
    files = [RECORDS / f"{name}.jsonl" for name in ("long_retrieval", "documents")]
    if draw(read_records([file for file in files if file.exists()]), PICTURE):
        print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
