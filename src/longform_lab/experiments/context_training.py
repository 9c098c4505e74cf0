"""Encoders of passages trained on queries as those of ``context_tasks``, from articles that trainings read.

    python -m longform_lab.experiments.context_training whole --data ../shared/data --output runs/context
    python -m longform_lab.experiments.context_training alone --data ../shared/data --output runs/context

``whole`` is a conversion for 4,096 tokens whose first 64 stay exact, without the shipped adapter; ``alone`` the
original, which reads each passage between special tokens. Both see the same passages of the same documents and steps.
Interrupted, the same command goes on. ``context_scores --alone runs/context/alone --whole runs/context/whole`` tests.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import longform
from longform.conversion.local import local_source
from longform_lab.experiments.context_tasks import TASKS, Passages, make_task
from longform_lab.experiments.passages import CHARACTERS, KINDS, LONGER, articles, opened_alone, sources
from longform_text.training.alignment.model import OpenedModel, open_sentence_model
from longform_text.training.alignment.run import align_opened
from longform_text.training.alignment.settings import AlignmentSource
from longform_text.training.alignment.sources import open_source
from longform_text.training.run import run_in

READ = (4000, 7000)  # numbers of the articles
QUERIES = 2000  # of each task
SINKS, LONGEST = 64, 4096
STEPS = 600
SETTINGS = replace(LONGER, max_steps=STEPS, learning_rate=1e-3, bf16=True)


def asked(made: Passages) -> Iterator[dict[str, Any]]:
    """The queries of a task with their documents, and the characters from-to of what is right."""
    starts = np.cumsum([0, *map(len, made.spans)])
    for query, right in zip(made.queries, made.right, strict=True):
        number = int(np.searchsorted(starts, min(right), side="right")) - 1
        where = [made.spans[number][place - starts[number]] for place in sorted(right)]
        yield {"query": query, "document": made.texts[number], "where": where}


def opened_whole(output: Path, device: Any) -> OpenedModel:
    """The conversion, without an adapter."""
    converted = output / "converted"
    if not converted.is_dir():
        made = longform.convert(
            local_source("bundled"), projection="mean", max_length=LONGEST, sublinear_tf=True, sink_tokens=SINKS
        )
        made.save_pretrained(converted)
    return open_sentence_model(converted, device)


def train(kind: str, data: Path, output: Path, *, steps: int, length: int) -> Path:
    """The folder of the trained encoder of a ``kind``, "whole" or "alone"."""
    settings = replace(SETTINGS, max_steps=steps, max_length=length)
    with run_in(output / kind, settings) as run:
        opened = (opened_whole if kind == "whole" else opened_alone)(output, run.arguments.device)
        every = list(articles(data, *READ))
        tasks = (make_task(name, every, opened.encoder.tokenizer, length, queries=QUERIES, seed=1) for name in TASKS)
        made = [AlignmentSource(pairs=[*asked(task)], spans_field="where", weight=2) for task in tasks]
        chosen = [*made, *sources(data, int(length * CHARACTERS))]
        pairs = [open_source(each, characters=4 * length, heldout=0, seed=settings.seed) for each in chosen]
        align_opened(opened, pairs, [each.weight for each in chosen], run)
    return output / kind


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train an encoder of passages on queries that need their document.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--data", type=Path, required=True, help="folder with the parquet files")
    parser.add_argument("--output", type=Path, default=Path("runs/context"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--length", type=int, default=SETTINGS.max_length, help="tokens of a document")
    given = parser.parse_args()
    print(train(given.kind, given.data, given.output, steps=given.steps, length=given.length))


if __name__ == "__main__":
    main()
