"""Which pooling a classification head reads most from: heads alone, many times, on the demo's training texts.

    python -m longform_lab.experiments.heads runs/demo --output runs/heads

The healed Longform and the original of a finished demo embed the training texts, each cut as in training. A draw fits
the demo's heads to four fifths of them and tests on the rest; no test text of the demo is read. Each pooling appends a
record to benchmarks/records/heads.jsonl. The embeddings are kept in the output folder and used again.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from longform.choices import POOLINGS
from longform.data.batching import Batch
from longform.data.storage import atomic_write
from longform.evaluation.classification import classification_scores, label_ids
from longform.functional.pooling import pooled
from longform.inference.encoders import Encoder
from longform.inference.strategies import run_texts
from longform_lab.demo.head import fit_head
from longform_lab.demo.material import Material
from longform_lab.demo.scale import scale_named
from longform_lab.records import RECORDS, Record, append_record

SINGLE = tuple(kind for kind in POOLINGS if "_" not in kind)
MODELS = {"longform": "healed", "original": "original-converted"}
HELD_OUT = 0.2


def embed(folder: Path, texts: Sequence[str], length: int) -> np.ndarray:
    """The vectors of every single pooling from one pass over the texts: float32 (N, P D)."""
    encoder = Encoder.from_pretrained(folder, pooling="cls", max_length=length, dtype="auto")

    def forward(batch: Batch) -> Tensor:
        inputs = batch.model_inputs()
        hidden = encoder.model(**inputs).last_hidden_state.float()
        mask = inputs["attention_mask"].bool()
        return torch.cat([pooled(hidden, mask, kind=kind) for kind in SINGLE], dim=1)

    outcomes = run_texts(forward, texts, encoder.tokenizer, limit=encoder.limit)
    return np.stack([outcome.values for outcome in tqdm(outcomes, total=len(texts), desc=folder.name, unit="text")])


def embeddings(demo: Path, output: Path, material: Material) -> dict[str, dict[str, np.ndarray]]:
    """Of both models, computed once."""
    lengths = scale_named("full", seed=0).lengths
    found = {}
    for name, folder in MODELS.items():
        file = output / f"{name}.npy"
        if not file.is_file():
            vectors = embed(demo / "work" / folder, [text for _, text, _ in material.train], lengths[name])
            with atomic_write(file, "wb") as handle:
                np.save(handle, vectors)
        found[name] = dict(zip(SINGLE, np.split(np.load(file), len(SINGLE), axis=1), strict=True))
    return found


def score(vectors: np.ndarray, labels: Sequence[str], names: list[str], held: np.ndarray) -> tuple[float, float]:
    """Accuracy and macro-F1 in percent on the texts ``held`` (bool) of a head fitted to the others."""
    state = fit_head(vectors[~held], [label for label, out in zip(labels, held, strict=True) if not out], names).state
    hidden = torch.tanh(torch.from_numpy(vectors[held]) @ state["dense.weight"].T + state["dense.bias"])
    logits = hidden @ state["out_proj.weight"].T + state["out_proj.bias"]
    places = {name: number for number, name in enumerate(names)}
    truth = label_ids([label for label, out in zip(labels, held, strict=True) if out], places)
    scores = classification_scores(logits.numpy(), truth, names)
    return 100 * scores.accuracy, 100 * scores.macro_f1


def measured(found: dict[str, dict[str, np.ndarray]], material: Material, pooling: str, draws: int) -> Record:
    """Both models over all draws, and their difference draw by draw."""
    labels = [label for _, _, label in material.train]
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in MODELS}
    for draw in tqdm(range(draws), desc=pooling, unit="draw"):
        held = np.zeros(len(labels), dtype=bool)
        held[np.random.default_rng(draw).permutation(len(labels))[: int(HELD_OUT * len(labels))]] = True
        for name in MODELS:
            vectors = np.concatenate([found[name][kind] for kind in pooling.split("_")], axis=1)
            results[name].append(score(vectors, labels, material.labels, held))
    metrics: dict[str, Any] = {}
    for place, metric in enumerate(("accuracy", "macro_f1")):
        values = {name: [pair[place] for pair in results[name]] for name in MODELS}
        gains = [a - b for a, b in zip(values["longform"], values["original"], strict=True)]
        metrics |= {f"{name}_{metric}": fmean(values[name]) for name in MODELS}
        metrics |= {f"{metric}_difference": fmean(gains), f"{metric}_difference_sd": stdev(gains)}
    settings = {"data": "licences", "pooling": pooling, "texts": len(labels), "held_out": HELD_OUT, "draws": draws}
    return Record(name="heads", metrics=metrics, settings=settings)


def main(arguments: Sequence[str] | None = None) -> None:
    """Embed, fit, append a record and print a line for each pooling."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demo", type=Path, help="folder of a finished demo")
    parser.add_argument("--output", type=Path, required=True, help="folder of the embeddings")
    parser.add_argument("--draws", type=int, default=40)
    options = parser.parse_args(arguments)
    material = Material.load(options.demo / "work" / "texts.json")
    found = embeddings(options.demo, options.output, material)
    for pooling in POOLINGS:
        record = measured(found, material, pooling, options.draws)
        append_record(RECORDS / "heads.jsonl", record)
        print(record.settings, record.metrics, flush=True)


if __name__ == "__main__":
    main()
