"""The report of a comparison, made from its results."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from longform.pretrained.model_card import Table
from longform_lab.compare.architectures import ARCHITECTURES
from longform_lab.compare.memory import texts_at_once
from longform_lab.compare.results import Result
from longform_lab.compare.sequences import SequenceTask
from longform_lab.report import Report, Section, listed, write_report

DASH = "–"
COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("architecture", "title", str),
    ("accuracy, %", "accuracy", lambda value: f"{100 * value:.2f}"),
    ("macro-F1, %", "macro_f1", lambda value: f"{100 * value:.2f}"),
    ("training, processor s", "cpu_seconds", "{:,.0f}".format),
    ("training, wall-clock s", "seconds", "{:,.0f}".format),
    ("testing, ms a text", "milliseconds_per_text", "{:,.1f}".format),
    ("memory of a step, MiB", "memory_mib", "{:,.0f}".format),
    ("parameters", "parameters", "{:,d}".format),
)


def table_of(results: Sequence[Result]) -> Table:
    """A row for each architecture that was not skipped."""
    values = [[(getattr(result, name), form) for _, name, form in COLUMNS] for result in results if not result.skipped]
    rows = [[DASH if value is None else form(value) for value, form in row] for row in values]
    return Table([head for head, _, _ in COLUMNS], rows)


def left_out(results: Sequence[Result]) -> list[str]:
    """Note on what was not measured, and why."""
    skipped = [f"{result.title}: not run, {result.skipped}" for result in results if result.skipped]
    return skipped + [
        f"{result.title}: memory not measured, {result.memory_reason}" for result in results if result.memory_reason
    ]


def report_comparison(results: Sequence[Result], task: SequenceTask, settings: dict[str, Any], output: Path) -> None:
    """Write it; the picture is in ``output`` already."""
    hardware = next((result.facts["hardware"] for result in results if result.facts), {})
    picture = ("comparison.png", "test accuracy against training time, a mark each")
    report = Report(
        f"Architectures side by side: {task.name}",
        [_lead(task, settings)],
        [Section("Results", table_of(results), [picture]), Section("Who is who", _sources(results, settings))],
        left_out(results),
        foot=f"Settings: {listed(settings)}. Ran on: {listed(hardware)}.",
    )
    write_report(output, report)


def _lead(task: SequenceTask, settings: dict[str, Any]) -> str:
    counts = [len(part.labels) for part in task.parts]
    lengths = task.train.lengths
    at_once = texts_at_once(settings["batch_size"], settings["tokens_per_forward"], settings["length"])
    return (
        f"{counts[0]:,} sequences to train on, {counts[1]:,} to choose the best weights, {counts[2]:,} to test; "
        f"{len(task.train.names)} classes; {min(lengths):,} to {max(lengths):,} tokens, "
        f"{sum(lengths) / counts[0]:,.0f} on average. All architectures have {settings['layers']} layers of width "
        f"{settings['hidden_size']} with {settings['heads']} heads, the same vocabulary, the same pooling "
        f"({settings['pooling']}) and head, and see the same {settings['steps']:,} batches of "
        f"{settings['batch_size']}, from random weights. Time is that of the training "
        "steps; memory the peak of one float32 forward and backward pass over the texts "
        f"of full length that go through the model at once ({at_once}). Reformer's head is twice as wide, as its "
        "output is. Not the same is where the architectures normalise: see below."
    )


def _sources(results: Sequence[Result], settings: dict[str, Any]) -> Table:
    words = {"pre": "before each part", "post": "after each part"}
    norms = {name: words[row.norm or settings["normalization"]] for name, row in ARCHITECTURES.items()}
    rows = [[result.title, result.source, result.pads, norms.get(result.name, DASH)] for result in results]
    return Table(["", "code from", "pads a batch to", "normalises"], rows, 4)
