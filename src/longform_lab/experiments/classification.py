"""Classification of long documents: Longform at 4,096 tokens beside the original at 512, over several splits.

    python -m longform_lab.experiments.classification licences --output runs/licences --splits 1 2 3 4 5
    python -m longform_lab.experiments.classification contracts --data FOLDER \\
        --output runs/contracts --heal-tokens 200000

The recipe is the demo's, but on all training texts and at a higher rate; contracts are pooled by "cls_lead". Both
models get the same texts, steps and rates. A split is its own draw of training, validation and test texts, of the order
and of the healing. Each model of each split appends a record to benchmarks/records/classification.jsonl; called again,
it goes on with what is missing.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from longform.data.bundled import bundled_encoder_folder
from longform.inference.weights import quiet_transformers
from longform_lab.demo import steps
from longform_lab.demo.material import Material, make_material
from longform_lab.demo.pipeline import Pipeline
from longform_lab.demo.scale import Scale, scale_named
from longform_lab.records import RECORDS, Record, append_record

RECORD_FILE = RECORDS / "classification.jsonl"
CONTRACTS = {"train": 400, "validation": 48, "test": 600}  # the others are read without labels, in healing
LABELS = {"longform": "Longform", "original": "original"}


def contract_material(data: Path, split: int) -> Material:
    """Five kinds of contract; what is left of the set, and the training texts, heal."""
    table = pd.read_parquet(data / "contracts_train.parquet").sample(frac=1.0, random_state=split)
    pairs = zip(table.text.tolist(), table.label.tolist(), strict=True)
    texts = [(str(number), text, label) for number, (text, label) in enumerate(pairs)]
    parts, first = {}, 0
    for name, count in CONTRACTS.items():
        parts[name] = texts[first : first + count]
        first += count
    unlabelled = [text for _, text, _ in (*parts["train"], *texts[first:])]
    labels = sorted(table.label.unique())
    return Material(
        str(bundled_encoder_folder()), parts["train"], parts["validation"], parts["test"], unlabelled, labels, {}
    )


def scale_of(options: argparse.Namespace, split: int) -> Scale:
    """The demo's scale with the chosen rates and healing, and with what contracts have of their own."""
    scale = scale_named("full", seed=split)
    if options.set == "contracts":
        scale = replace(scale, pooling="cls_lead")
    rates = {"learning_rate": options.learning_rate, "head_learning_rate": options.head_learning_rate}
    return replace(
        scale, heal=replace(scale.heal, max_tokens=options.heal_tokens), finetune=replace(scale.finetune, **rates)
    )


def run_split(options: argparse.Namespace, split: int) -> None:
    """Convert, heal, fit heads, fine-tune and test both models on one split."""
    scale = scale_of(options, split)
    folder = options.output / f"split-{split}"
    rate = scale.finetune.learning_rate
    said = f"{options.set}, healed on {options.heal_tokens:,} tokens, pooled by {scale.pooling}, rate {rate:g}"
    pipeline = Pipeline(folder, {"seed": split, "scale": said})
    pipeline.open()

    def prepare() -> dict[str, Any]:
        if options.set == "licences":
            material = make_material(scale, seed=split, folder=pipeline.work / "encoder")
        else:
            material = contract_material(options.data, split)
        with quiet_transformers():
            return steps.prepare_models(pipeline, scale, material, seed=split)

    pipeline.step("prepare", prepare)
    healed = pipeline.step("heal", lambda: steps.heal(pipeline, scale))
    texts = len(steps.material_of(pipeline).train)
    pipeline.step("start", lambda: steps.start(pipeline, scale, texts=texts))
    for name in LABELS:
        run = {
            "data": options.set, "split": split, "learning_rate": rate,
            "healing_tokens": healed["tokens"] if name == "longform" else 0,
        }  # fmt: skip
        finish_model(pipeline, scale, name, texts, run)


def finish_model(pipeline: Pipeline, scale: Scale, name: str, texts: int, run: dict[str, Any]) -> None:
    """Fine-tune, test and record one of the two."""
    lengths = {"longform": scale.length, "original": scale.original_length}
    tuned = pipeline.step(f"train {name}", lambda: steps.train(pipeline, scale, name, texts=texts))
    scores = pipeline.step(f"test {name}", lambda: steps.score(pipeline, name))
    pipeline.step(
        f"record {name}",
        lambda: keep(name, {**run, "pooling": scale.pooling, "max_length": lengths[name]}, tuned, scores),
    )


def keep(name: str, run: dict[str, Any], tuned: dict[str, Any], scores: dict[str, Any]) -> dict[str, Any]:
    """Append a record and print it."""
    settings = {
        **run, "model": LABELS[name], "train_documents": tuned["texts"], "test_documents": len(scores["truth"]),
        "steps": tuned["steps"],
    }  # fmt: skip
    metrics = {"accuracy": scores["accuracy"], "macro_f1": scores["macro_f1"], "seconds": tuned["seconds"]}
    append_record(RECORD_FILE, Record(name="classification", metrics=metrics, settings=settings))
    print("\n", settings, metrics, flush=True)
    return {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the splits one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=("licences", "contracts"))
    parser.add_argument("--data", type=Path, help="folder of contracts_train.parquet")
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3], help="seeds of the splits")
    parser.add_argument("--heal-tokens", type=int, default=100_000)
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--head-learning-rate", type=float, default=1e-4)
    options = parser.parse_args(arguments)
    if options.set == "contracts" and options.data is None:
        parser.error("contracts needs --data FOLDER")
    for split in options.splits:
        run_split(options, split)
    return 0


if __name__ == "__main__":
    sys.exit(main())
