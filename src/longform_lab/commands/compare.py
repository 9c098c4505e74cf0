"""``longform compare``: several architectures trained on one data set with one budget."""

from typing import Any

from longform.choices import DTYPES, POOLINGS, PROJECTION_INITS, SCALES
from longform_text.cli.arguments import add_device, add_options, command_parser, print_next, print_table
from longform_text.data.token_store import input_paths

SUMMARY = "train several architectures on one task with one budget"

ARCHITECTURES = (
    "full",
    "longform",
    "selection",
    "weighted",
    "linformer",
    "reformer",
    "longformer",
    "bigbird",
    "nystromformer",
    "performer",
    "tfidf",
)
# What --help says about time; measured times replace estimates.
TIMES = (
    "On one CPU core all of them took 35 minutes on 1,614 contracts (text, --scale small --length 512 --steps 300) and "
    "10 minutes on digits. listops at --scale paper took 1.3 hours for Linformer and 2.5 for full attention. listops "
    "at --scale small, and text at its default 1,024 tokens and 400 steps, were not timed."
)


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "compare",
        "Train small models of several architectures from scratch on the same batches, and write a table, a plot and a "
        "report. The architectures are full attention, Longform (window, selection, weighted means), Linformer, "
        "Reformer, Longformer, BigBird, Nyströmformer, Performer, and TF-IDF with logistic regression. After an "
        "interruption, the same command continues; finished architectures are kept, and others may be added. An "
        f"architecture that runs out of memory is shown as not run, with the reason. {TIMES}",
        example="--task digits --output runs/digits",
    )
    add_options(
        made,
        ("task", ("text", "bytes", "listops", "digits"), "text", "bytes: texts as bytes; digits: scikit-learn's"),
        ("data", str | None, None, "text, bytes: .parquet, .jsonl or .csv file, or hf:NAME[:CONFIG]:SPLIT"),
        ("text_field", None, "text", "field with the text"),
        ("label_field", None, "label", "field with the label"),
        ("pair_field", str | None, None, "field with the second text of a pair"),
        ("output", str, "runs/compare", "folder for results and report"),
        ("scale", SCALES, "small", "small: two CPU cores; paper: the papers' sizes"),
        ("architectures", ("all", *ARCHITECTURES), ["all"], "architectures to train"),
        ("length", int | None, None, "tokens of the longest text; null: the scale's"),
        (
            "vocabulary",
            int | None,
            None,
            "text: tokens learned from the training part, fewer if it is too small; null: the scale's",
        ),
        ("pooling", POOLINGS, None, "pooling of the last states; cls: the first token; null: the scale's, mean"),
        (
            "projection_init",
            PROJECTION_INITS,
            None,
            "initial E of Linformer; block_mean, the default: means of k blocks; normal: the paper's N(0, 1/k)",
        ),
        ("steps", int | None, None, "optimiser steps; null: the scale's"),
        ("batch_size", int | None, None, "texts of a step; null: the scale's"),
        ("learning_rate", float | None, None, "highest rate; null: the scale's"),
        ("dtype", DTYPES, None, "dtype of matrix products; null: the scale's"),
    )
    add_device(made)
    add_options(
        made,
        ("seed", int, 0, "seed of split, weights, order and dropout"),
    )
    return made


def run(settings: Any) -> None:
    """Train the architectures, and print the table."""
    from longform.files import check_begun, check_output
    from longform_lab.compare.report import left_out
    from longform_lab.compare.run import EVERY, IDENTITY, compare
    from longform_lab.compare.tasks import open_task

    names = (
        "data", "text_field", "label_field", "pair_field", "vocabulary", "length", "pooling", "projection_init",
        "seed", "steps", "batch_size", "learning_rate", "dtype",
    )  # fmt: skip
    output = check_output(settings.output, inputs=input_paths((settings.data,)), folder=True)
    check_begun(output, IDENTITY, what="comparison")
    opened = open_task(settings.task, settings.scale, **{name: getattr(settings, name) for name in names})
    chosen = EVERY if settings.architectures == ["all"] else settings.architectures
    results = compare(
        opened.task,
        opened.sizes,
        opened.learning,
        output,
        architectures=chosen,
        device=settings.device,
        described={"kind": settings.task, "scale": settings.scale},
    )
    rows = [
        {
            "architecture": result.title,
            "accuracy": result.accuracy,
            "macro_F1": result.macro_f1,
            "processor_seconds": result.cpu_seconds,
            "ms_a_text": _shown(result.milliseconds_per_text),
            "memory_MiB": _shown(result.memory_mib),
        }
        for result in results
        if not result.skipped
    ]
    if rows:
        print_table(f"{opened.task.name}, {len(opened.task.test.labels):,} test texts", rows)
    for said in left_out(results):
        print(said)
    print(f"saved  {settings.output} (report.html, comparison.png, table.md, records.jsonl)")
    print_next(f"open {settings.output}/report.html")


def _shown(value: float | None) -> float | str:
    return "–" if value is None else value
