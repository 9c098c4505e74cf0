"""Memory of the driver of ``longform embed --engine ray``: very many small documents, a model that does nothing.

::

    python -m longform_lab.experiments.ray_memory  # 10,000,000 documents of one line; appends a record
    python -m longform_lab.experiments.ray_memory --rows 1000000 --no-record

A Ray of its own on this machine; the driver is a process of its own, whose resident memory is read when the first actor
is ready and, at its highest, in the end.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil

from longform.data.text import Document
from longform.inference import parts_run, ray_engine
from longform.inference.prepared import Made, Prepared
from longform.inference.settings import InferenceSettings
from longform_lab.records import RECORDS, Record, append_record
from longform_lab.speed.memory import process_peak

LARGEST_GROWTH = 2**30  # bytes


def prepare_nothing(model: str, settings: InferenceSettings) -> Prepared:
    """A model whose vector of a text is its length."""

    def results(documents: Iterator[Document], computed: Any) -> Iterator[Made]:
        for document in documents:
            yield Made(np.array([[len(document.text)]], dtype=np.float32), [{"tokens": 1, "truncated": 0}])

    return Prepared(results, lambda row: {"embedding": row}, 64, settings, {"command": "nothing"})


def drive(source: str, output: str, actors: int) -> dict[str, float]:
    """Run the job in this process: what it did, and its memory before and at most."""
    before = 0

    class Watched(ray_engine.RayEngine):
        def identity(self) -> dict[str, Any]:
            nonlocal before
            found = super().identity()
            before = psutil.Process().memory_info().rss
            return found

    settings = InferenceSettings(text_field="text", engine="ray", actors=actors, progress=False)
    with patch.object(parts_run, "RayEngine", Watched):
        result = parts_run.run_parts(partial(prepare_nothing, settings=settings), "nothing", [source], output, settings)
    return {
        "documents": result.documents, "seconds": result.seconds, "before": before, "peak": process_peak(),
        "parts": len(list(Path(output).glob("part-*"))),
    }  # fmt: skip


def main() -> None:
    """Make the documents, run the driver, print, append."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--actors", type=int, default=1)
    options.add_argument("--no-record", action="store_true")
    options.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.drive:
        from longform_lab.experiments.ray_memory import drive as imported  # by the name that other processes know

        print(json.dumps(imported(*given.drive, given.actors)))
        return
    with tempfile.TemporaryDirectory() as folder:
        source, begun = Path(folder, "lines.jsonl"), time.perf_counter()
        with source.open("w") as file:
            file.writelines(f'{{"id": "{row}", "text": "one line, number {row}"}}\n' for row in range(given.rows))
        print(f"{given.rows:,} lines in {time.perf_counter() - begun:.0f} s", flush=True)
        module = "longform_lab.experiments.ray_memory"
        line = [sys.executable, "-m", module, "--actors", str(given.actors), "--drive", str(source)]
        done = subprocess.run([*line, str(Path(folder, "out"))], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    growth = found["peak"] - found["before"]
    print(f"{found}\ngrowth of the driver {growth / 2**20:.0f} MiB")
    if found["documents"] != given.rows or growth > LARGEST_GROWTH:
        raise SystemExit("not all documents, or more memory than one GiB")
    if not given.no_record:
        metrics = {**found, "growth": growth}
        units = dict.fromkeys(("before", "peak", "growth"), "bytes") | {"seconds": "s"}
        settings = {"rows": given.rows, "actors": given.actors}
        append_record(RECORDS / "ray.jsonl", Record(name="ray_memory", settings=settings, metrics=metrics, units=units))


if __name__ == "__main__":
    main()
