"""A Ray cluster of two nodes on this machine, one CPU each: its output beside the local engine's, and its throughput.

::

    python -m longform_lab.experiments.ray_cluster  # 2,000 licence texts, 240 speeches; appends a record
    python -m longform_lab.experiments.ray_cluster --licences 40 --speeches 4 --no-record

The bundled MiniLM, converted, reads every text up to ``--max-length`` tokens: in this process alone, by one actor of
one thread, and by two. Vectors must equal the local engine's, row for row; throughput of two over one is what is
measured, on a machine with two cores that does nothing else.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch

import longform
from longform.choices import DTYPES
from longform.data.bundled import bundled_encoder_folder, licence_documents
from longform.data.bundled import speeches as bundled_speeches
from longform.inference.result import InferenceResult
from longform_lab.records import RECORDS, Record, append_record

TOLERANCE = 1e-6
PART_ROWS = 32


def write_texts(folder: Path, licences: int, speeches: int) -> Path:
    """Two files: licence texts, and speeches, the latest first."""
    sources = {
        "licences.jsonl": [(each.id, each.text) for each in licence_documents()[:licences]],
        "speeches.jsonl": [(each.id, each.text) for each in bundled_speeches()[::-1][:speeches]],
    }
    for name, texts in sources.items():
        lines = (json.dumps({"id": key, "text": text}) + "\n" for key, text in texts)
        (folder / name).write_text("".join(lines))
    return folder


def frame(result: InferenceResult) -> pandas.DataFrame:
    """The rows of a folder of parts, in the order of the input."""
    return pandas.read_parquet(str(result.output))


def difference(one: pandas.DataFrame, other: pandas.DataFrame) -> float:
    """The largest difference of two outputs' vectors; raises where their rows are not the same."""
    others = [name for name in one if name != "embedding"]
    pandas.testing.assert_frame_equal(one[others], other[others])
    first, second = (np.stack(list(each["embedding"])) for each in (one, other))
    return float(np.abs(first - second).max())


def main() -> None:
    """Run the engines, compare, print, append."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--licences", type=int, default=2_000)
    options.add_argument("--speeches", type=int, default=240)
    options.add_argument("--max-length", type=int, default=4_096, help="tokens of a text")
    options.add_argument("--dtype", choices=DTYPES, default="float32", help="of the products, in all three")
    options.add_argument("--no-record", action="store_true")
    given = options.parse_args()
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    torch.set_num_threads(1)
    metrics: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "texts").mkdir()
        texts = write_texts(folder / "texts", given.licences, given.speeches)
        longform.convert(bundled_encoder_folder(), max_length=given.max_length).save_pretrained(folder / "model")
        how: dict[str, Any] = {"part_rows": PART_ROWS, "dtype": given.dtype}
        results = {"local": longform.embed(folder / "model", texts, folder / "local", **how)}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        try:
            for actors in (1, 2):
                how |= {"engine": "ray", "ray_address": cluster.address, "actors": actors}
                name = f"ray_{actors}"
                results[name] = longform.embed(folder / "model", texts, folder / name, **how)
        finally:
            cluster.shutdown()
        for name, result in results.items():
            metrics[f"{name}_tokens_per_second"] = result.tokens_per_second
            metrics[f"{name}_difference"] = difference(frame(results["local"]), frame(result))
            print(f"{name}: {result.documents:,} documents, {result.tokens:,} tokens, {result.seconds:.1f} s")
    metrics["two_over_one"] = metrics["ray_2_tokens_per_second"] / metrics["ray_1_tokens_per_second"]
    print("\n".join(f"{name:<28} {value:.4g}" for name, value in metrics.items()))
    print(f"two actors over one: {metrics['two_over_one']:.2f}")
    if max(value for name, value in metrics.items() if name.endswith("_difference")) > TOLERANCE:
        raise SystemExit(f"rows differ by more than {TOLERANCE:g}")
    if not given.no_record:
        settings = {name: getattr(given, name) for name in ("licences", "speeches", "max_length", "dtype")}
        units = {name: "tokens/s" for name in metrics if name.endswith("per_second")}
        append_record(
            RECORDS / "ray.jsonl", Record(name="ray_cluster", settings=settings, metrics=metrics, units=units)
        )


if __name__ == "__main__":
    main()
