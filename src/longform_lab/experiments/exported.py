"""Exported graphs beside the model: differences first, then time per length, size, and quality in 8 bits; appends
records.

::

    longform export FOLDER --int8
    longform export FOLDER --format openvino --int8
    python -m longform_lab.experiments.exported FOLDER --sts stsb_dev.parquet

One thread, and the processor's time: what other processes do disturbs little. All exports that the folder has are
measured. ``--sts``: pairs ``sentence1``, ``sentence2`` with a ``score``, for the rank correlation, and their first 200
texts for the cosine.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from longform.evaluation.embeddings import agreement, similarity_spearman
from longform.export.formats import size_of
from longform.export.run import TOLERANCE, padded_texts
from longform.inference.encoders import Encoder
from longform.inference.exported import FILES
from longform_lab.records import RECORDS, Record, append_record

LENGTHS = (128, 512, 4_096, 16_384)
TURNS = 3
TEXTS = 200  # whose cosines are looked at


def encoders(folder: Path) -> dict[str, Encoder]:
    """The model itself and every export of its folder, by the name of the backend."""
    there = ["torch", *(name for name, file in FILES.items() if (folder / file).exists())]
    return {name: Encoder.from_pretrained(folder, backend=name) for name in there}


def size_mib(folder: Path, backend: str) -> float:
    """Size of the weights' file, or of the graph's files."""
    file = folder / ("model.safetensors" if backend == "torch" else FILES[backend])
    return size_of(file) / 2**20


@torch.inference_mode()
def timed(folder: Path, every: dict[str, Encoder], length: int) -> list[Record]:
    """The least processor time of a pass of each over one text of ``length`` tokens, in turn."""
    plain = every["torch"].model
    given = padded_texts(plain.config, ("input_ids", "attention_mask"), batch=1, length=length)
    expected = plain(**given).last_hidden_state
    differences = {name: float((one.model(**given)[0] - expected).abs().max()) for name, one in every.items()}
    for name, difference in differences.items():
        if not name.endswith("-int8") and not difference <= TOLERANCE:
            raise SystemExit(f"{name}, {length} tokens: a hidden state differs by {difference}; nothing is timed")
    seconds: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(TURNS):
        for name, one in every.items():
            began = time.process_time()
            one.model(**given)
            seconds[name].append(time.process_time() - began)
    return [
        Record(
            name="exported",
            settings={"model": folder.name, "backend": name, "tokens": length, "threads": 1},
            metrics={
                "milliseconds": 1000 * min(each),
                "of_torch": min(each) / min(seconds["torch"]),
                "turns": TURNS,
                "difference": differences[name],
                "mib": size_mib(folder, name),
            },
        )
        for name, each in seconds.items()
    ]


def quality(folder: Path, every: dict[str, Encoder], pairs: pd.DataFrame) -> list[Record]:
    """Rank correlation on ``pairs``, and cosines to the model's own vectors on the first texts of them."""
    sides: Sequence[list[str]] = [pairs["sentence1"].tolist(), pairs["sentence2"].tolist()]
    vectors = {name: [one.encode(side) for side in sides] for name, one in every.items()}
    texts = {name: np.concatenate(found)[:TEXTS] for name, found in vectors.items()}
    made = []
    for name, (first, second) in vectors.items():
        near = agreement(texts[name], texts["torch"])
        metrics: dict[str, Any] = {
            "sts_spearman": similarity_spearman(first, second, pairs["score"].tolist()),
            "cosine": near.mean,
            "lowest_cosine": near.lowest,
            "mib": size_mib(folder, name),
        }
        settings = {"model": folder.name, "backend": name, "pairs": len(pairs), "texts": len(texts[name])}
        made.append(Record(name="exported_quality", settings=settings, metrics=metrics))
    return made


def keep(output: Path, records: list[Record]) -> None:
    """Append and print."""
    for record in records:
        append_record(output, record)
        tqdm.write(f"{record.settings} {record.metrics}")


def main() -> None:
    """Measure, append, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sts", type=Path)
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--output", type=Path, default=RECORDS / "exported.jsonl")
    options = parser.parse_args()
    torch.set_num_threads(1)
    every = encoders(options.folder)
    longest = every["torch"].limit
    for length in tqdm([n for n in options.lengths if n <= longest], desc="lengths"):
        keep(options.output, timed(options.folder, every, length))
    if options.sts is not None:
        keep(options.output, quality(options.folder, every, pd.read_parquet(options.sts)))


if __name__ == "__main__":
    main()
