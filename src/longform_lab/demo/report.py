"""The demo's ``report.html``: a self-contained page, made from the results of the demo's steps.

It sets the fine-tuned Longform beside the original encoder, fine-tuned the same way. ``results``: the name of a step in
``longform_lab.demo.run`` ("prepare", "heal", "test longform", "test original" ...) -> what the step found.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.page import Block, Cards, Code, Heading, Picture, Table, write_page
from longform.training.plots import confusion_matrix
from longform_lab.demo.measuring import LONG, LONGER, ORIGINAL
from longform_lab.demo.plots import NAMES, draw_learning, draw_lengths

Results = Mapping[str, dict[str, Any]]


def write_report(path: Path, results: Results, environment: Mapping[str, Any], *, folder: str, pictures: Path) -> None:
    """Write the page; ``folder``: of the demo, as shown in commands; ``pictures``: a folder for its pictures."""
    blocks = [
        *_headline(results), *_comparison(results), *_confusion(results, pictures), *_curves(results, pictures),
        *_next_steps(folder), *_how_it_was_made(results),
    ]  # fmt: skip
    foot = "; ".join(f"{name} {value}" for name, value in environment.items())
    write_page(path, "A short encoder that now reads long documents", blocks, foot=foot)


def _headline(results: Results) -> list[Block]:
    long, original, report = results["test longform"], results["test original"], results["prepare"]["report"]
    gain, agreement = results["difference"], results["heal"]
    cut = f"original cut at {report['source_length']:,} tokens: {original['accuracy']:.1%}"
    longer = f"{gain['long']['texts']} of {len(long['truth'])} test texts are longer than the original reads"
    cosine = f"mean cosine to the original's embedding; {agreement['before']['cosine']:.3f} before"
    return [
        f"{report['family']} encoder, converted to {report['max_length']:,} tokens, healed by distillation, and "
        "fine-tuned to tell licence texts apart; beside the original, fine-tuned the same way.",
        Cards(
            [
                ("Accuracy", f"{long['accuracy']:.1%}", cut),
                ("Macro-F1", f"{long['macro_f1']:.1%}", f"original: {original['macro_f1']:.1%}"),
                ("Tokens it reads", f"{report['max_length']:,}", f"instead of {report['source_length']:,}; {longer}"),
                ("Agreement after healing", f"{agreement['after']['cosine']:.3f}", cosine),
            ]
        ),
    ]


def _comparison(results: Results) -> list[Block]:
    long, original, gain = results["test longform"], results["test original"], results["difference"]
    scores = [
        ("Accuracy on the test texts", original["accuracy"], long["accuracy"]),
        ("Macro-F1 on the test texts", original["macro_f1"], long["macro_f1"]),
    ]
    for key, which in (("long", "longer than the original reads"), ("short", "that the original reads whole")):
        part = gain[key]
        if part["texts"]:
            scores.append((f"Accuracy on the {part['texts']} texts {which}", part["original"], part["longform"]))
    rows = [[name, f"{before:.1%}", f"{now:.1%}", f"{100 * (now - before):+.1f}"] for name, before, now in scores]
    tuned = results["train original"], results["train longform"]
    amounts: dict[str, Sequence[Any]] = {
        "Test texts that were cut": [sum(tokens > 0 for tokens in x["truncated"]) for x in (original, long)],
        "Texts that the head was fitted to": 2 * [results["choose"]["heads"]],
        "Texts fine-tuned on; optimiser steps": [f"{x['texts']}; {x['steps']}" for x in tuned],
        "Longest text in fine-tuning, tokens": [f"{x['max_length']:,}" for x in tuned],
        "Seconds of fine-tuning": [f"{x['seconds']:,.0f}" for x in tuned],
        "Seconds of testing": [f"{x['seconds']:,.0f}" for x in (original, long)],
    }
    rows += [[name, *map(str, values), ""] for name, values in amounts.items()]
    low, high = (100 * value for value in gain["interval"])
    return [
        Heading("Original and Longform"),
        Table(["", "original", "Longform", "Longform is better by, points"], rows),
        f"{len(long['truth'])} test texts: in accuracy Longform is better by {100 * gain['accuracy']:+.1f} points, "
        f"95 % interval {low:+.1f} to {high:+.1f} (paired bootstrap). "
        f"{'It includes zero: one run of this size cannot tell the two apart. ' if low <= 0 <= high else ''}"
        "Both models have the same kind of head (a mean of all tokens, early ones weigh more; it starts as logistic "
        "regression on the model's own embeddings), texts, order, rates and number of steps.",
    ]


def _confusion(results: Results, pictures: Path) -> list[Block]:
    blocks: list[Block] = [
        Heading("What is taken for what"),
        "Rows are the true categories, columns the predicted ones.",
    ]
    for name in (LONG, ORIGINAL):
        scores, path = results[f"test {name}"], pictures / f"confusion-{name}.png"
        confusion_matrix(scores["confusion"], scores["labels"], path)
        blocks += [
            Heading(NAMES[name], 3),
            Picture.read(path, f"confusion matrix of the {NAMES[name]} on the test texts"),
        ]
    return blocks


def _curves(results: Results, pictures: Path) -> list[Block]:
    rows = results["measure"]["rows"]
    learning, lengths = pictures / "learning.png", pictures / "lengths.png"
    draw_learning(
        {name: results[f"train {name}"]["rows"] for name in (LONG, ORIGINAL)}, results["heal"]["rows"], learning
    )
    draw_lengths(rows, lengths)
    return [
        Heading("Learning curves"),
        Picture.read(learning, "training loss and validation score of both fine-tunings, and the loss of healing"),
        Heading("Time and memory against length"),
        growth(rows),
        Picture.read(lengths, "time and peak memory of one document against its tokens, a line a model"),
    ]


def growth(rows: Sequence[Mapping[str, Any]]) -> str:
    """A sentence: how time grows with length for both models, and what they take at the longest length of both."""
    table = {(row["model"], row["length"]): row for row in rows}
    parts = []
    for name in (LONG, LONGER):  # LONGER: the original with a longer position table
        lengths = sorted(length for model, length in table if model == name)
        if len(lengths) > 1:
            first, last = table[name, lengths[0]], table[name, lengths[-1]]
            times, ratio = last["seconds"] / first["seconds"], lengths[-1] / lengths[0]
            parts.append(
                f"{NAMES[name]}: {lengths[0]:,} -> {lengths[-1]:,} tokens ({ratio:.0f} x) takes {times:.1f} x the time"
            )
    both = sorted({length for model, length in table if model == LONG} & {n for model, n in table if model == LONGER})
    if both:
        longest = both[-1]
        long, full = table[LONG, longest], table[LONGER, longest]
        parts.append(f"at {longest:,} tokens {_cost(long)} instead of {_cost(full)} with full attention")
    return "; ".join(parts) + "."


def _cost(row: Mapping[str, Any]) -> str:
    memory = "" if row["mib"] is None else f" and {row['mib']:,.0f} MiB"
    return f"{row['seconds']:.2f} s{memory}"


def _next_steps(folder: str) -> list[Block]:
    model = f"{folder}/model"
    return [
        Heading("What to do next"),
        "Use the classifier from Python:",
        Code(
            "import longform\nfrom transformers import pipeline\n\n"
            f'classify = pipeline("text-classification", "{model}")\n'
            'print(classify(open("LICENSE").read(), truncation=True))',
            "python",
        ),
        "From the shell; and the same way with your own encoder and texts:",
        Code(
            f"longform predict {model} FILES_OR_FOLDERS --output labels.jsonl\n\n"
            "longform convert sentence-transformers/all-MiniLM-L6-v2 my-encoder --max-length 8192\n"
            "longform distill my-encoder sentence-transformers/all-MiniLM-L6-v2 YOUR_TEXTS --output my-healed\n"
            "longform finetune my-healed train.jsonl --output my-classifier\n"
            "longform embed my-healed YOUR_TEXTS --output vectors.parquet"
        ),
    ]


def _how_it_was_made(results: Results) -> list[Block]:
    facts, healing, tuned = results["prepare"]["facts"], results["heal"], results["train longform"]
    steps = [[name, f"{one['seconds']:,.0f} s"] for name, one in results.items() if one["seconds"] >= 1]
    return [
        Heading("How this was made"),
        f"{facts['texts']:,} licence texts of {len(results['prepare']['labels'])} categories in {facts['groups']:,} "
        f"groups of near duplicates (the largest has {facts['largest_group']}); no group is on two sides of the split. "
        f"{facts['train']:,} texts are for training; fine-tuning takes {tuned['texts']:,} of them, at most one from "
        f"each group of near duplicates, to fit into the time. Healing read {healing['tokens']:,} tokens without "
        "labels.",
        Table(["step", "time"], steps),
    ]
