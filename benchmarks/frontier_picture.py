"""Quality against speed: nDCG@10 of each contender over the documents that it reads in a second, from the records.

::

    python -m benchmarks.frontier_picture

A point is a reading of ``longform benchmark --preset documents``; its quality is that of its model in long_retrieval:
the original over chunks, whatever the runtime, or the Longform of the same name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.long_retrieval_tables import CHUNKS
from benchmarks.records import RECORDS, ROOT, Record, read_records
from longform.runs.pictures import finish, picture

PICTURE = ROOT / "docs" / "pictures" / "frontier.png"
DATA = "qmsum-val"


def points(records: Sequence[Record], *, data: str = DATA, threads: int = 1) -> dict[str, tuple[float, float]]:
    """Documents a second and nDCG@10 by reading, of those that have both; of several records the latest."""
    quality: dict[str, Any] = {
        record.settings["contender"]: record.metrics["ndcg_at_10"]
        for record in records if record.name == "long_retrieval" and record.settings["data"] == data
    }  # fmt: skip
    found: dict[str, Any] = {}
    for record in records:
        if record.name != "documents" or record.settings["threads"] != threads or record.metrics["missing"]:
            continue
        name = contender_of(record.settings["reading"])
        if name in quality:
            found[record.settings["reading"]] = (record.metrics["documents_per_second"], quality[name])
    return found


def contender_of(reading: str) -> str:
    """ "chunks, OpenVINO" -> "original, chunks averaged"; "Longform, window 64, float32" -> "window 64"."""
    return CHUNKS if reading.startswith("chunks, ") else reading.split(", ", 1)[1].rsplit(", ", 1)[0]


def draw(records: Sequence[Record], path: Path, *, data: str = DATA, threads: int = 1) -> bool:
    """The picture; False where nothing has both numbers."""
    found = points(records, data=data, threads=threads)
    if not found:
        return False
    with picture(path, 8.0, 5.0) as axes:
        for name, (speed, quality) in found.items():
            ours = name.startswith("Longform")
            axes.plot([speed], [quality], "o" if ours else "s", label=name, markersize=8)
        finish(axes, f"{data}, {threads} thread{'s' * (threads > 1)}", "documents a second", "nDCG@10 x 100")
    return True


def main() -> None:
    """Draw, and say what."""
    files = [RECORDS / f"{name}.jsonl" for name in ("long_retrieval", "documents")]
    if draw(read_records([file for file in files if file.exists()]), PICTURE):
        print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
