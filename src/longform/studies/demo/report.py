"""``report.html``: one file without links to anything outside it, made from the results of the steps."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from longform.data.text import atomic_write
from longform.studies.demo.charts import Line, confusion_table, line_chart
from longform.studies.demo.measuring import LONG, LONGER, ORIGINAL
from longform.studies.demo.style import STYLE

STYLES = {LONG: "long", ORIGINAL: "orig", LONGER: "third"}
NAMES = {LONG: "Longform", ORIGINAL: "original", LONGER: "original's full attention, longer position table"}
Results = Mapping[str, dict[str, Any]]


def write_report(path: Path, results: Results, environment: Mapping[str, Any], *, folder: str) -> None:
    """Write the page; ``folder``: the demo's, as its commands name it."""
    body = "".join(
        [
            _headline(results), _comparison(results), _confusion(results), _learning(results), _lengths(results),
            _next(folder), _how(results, environment),
        ]
    )  # fmt: skip
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Longform demo</title>'
        f"<style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )
    with atomic_write(path) as file:
        file.write(page)


def _headline(results: Results) -> str:
    long, original, prepared = results["test longform"], results["test original"], results["prepare"]
    gain, report = results["difference"], prepared["report"]
    agreement = results["heal"]
    cards = [
        ("Accuracy", f"{long['accuracy']:.1%}", f"original cut at {report['source_length']:,} tokens: "
         f"{original['accuracy']:.1%}"),
        ("Macro-F1", f"{long['macro_f1']:.1%}", f"original: {original['macro_f1']:.1%}"),
        ("Tokens it reads", f"{report['max_length']:,}", f"instead of {report['source_length']:,}; "
         f"{gain['long']['texts']} of {len(long['truth'])} test texts are longer than the original reads"),
        ("Agreement after healing", f"{agreement['after']['cosine']:.3f}",
         f"mean cosine to the original's embedding; {agreement['before']['cosine']:.3f} before"),
    ]  # fmt: skip
    drawn = "".join(
        f'<div class="card"><div class="name">{escape(name)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
        for name, value, note in cards
    )
    return (
        "<h1>A short encoder that now reads long documents</h1>"
        f'<p class="lead">{escape(report["family"])} encoder, converted to {report["max_length"]:,} tokens, healed by '
        "distillation, and fine-tuned to tell licence texts apart; beside the original, fine-tuned the same way.</p>"
        f'<div class="cards">{drawn}</div>'
    )


def _comparison(results: Results) -> str:
    long, original, gain = results["test longform"], results["test original"], results["difference"]
    rows = [
        ("Accuracy on the test texts", *(f"{x['accuracy']:.1%}" for x in (original, long)), gain["accuracy"]),
        ("Macro-F1 on the test texts", *(f"{x['macro_f1']:.1%}" for x in (original, long)), gain["macro_f1"]),
    ]
    for key, said in (("long", "longer than the original reads"), ("short", "that the original reads whole")):
        part = gain[key]
        if part["texts"]:
            name = f"Accuracy on the {part['texts']} texts {said}"
            shown = (f"{part['original']:.1%}", f"{part['longform']:.1%}")
            rows.append((name, *shown, part["longform"] - part["original"]))
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td class='num'>{before}</td>"
        f"<td class='num{' best' if change > 0 else ''}'>{after}</td><td class='num'>{100 * change:+.1f}</td></tr>"
        for name, before, after, change in rows
    )
    cells += _plain("Test texts that were cut", [sum(t > 0 for t in x["truncated"]) for x in (original, long)])
    tuned = results["train original"], results["train longform"]
    cells += _plain("Texts that the head was fitted to", 2 * [results["choose"]["heads"]])
    cells += _plain("Texts fine-tuned on; optimiser steps", [f"{x['texts']}; {x['steps']}" for x in tuned])
    cells += _plain("Longest text in fine-tuning, tokens", [f"{x['max_length']:,}" for x in tuned])
    cells += _plain("Seconds of fine-tuning", [f"{x['seconds']:,.0f}" for x in tuned])
    cells += _plain("Seconds of testing", [f"{x['seconds']:,.0f}" for x in (original, long)])
    low, high = (100 * value for value in gain["interval"])
    return (
        "<h2>Original and Longform</h2><div class='panel'><table><thead><tr><th></th><th class='num'>original</th>"
        f"<th class='num'>Longform</th><th class='num'>points</th></tr></thead>{cells}</table></div>"
        f"<p class='soft' style='margin-top:10px'>{len(long['truth'])} test texts: the difference in accuracy is "
        f"{100 * gain['accuracy']:+.1f} points, 95&nbsp;% interval {low:+.1f} to {high:+.1f} (paired bootstrap). "
        f"{'It includes zero: one run of this size cannot tell the two apart. ' if low <= 0 <= high else ''}"
        "Both models have the same kind of head (a mean of all tokens, early ones weigh more; it starts as logistic "
        "regression on the model's own embeddings), texts, order, rates and number of steps.</p>"
    )


def _plain(name: str, values: Sequence[Any]) -> str:
    return f"<tr><td>{escape(name)}</td>{''.join(f'<td class=num>{value}</td>' for value in values)}<td></td></tr>"


def _confusion(results: Results) -> str:
    panels = "".join(
        f"<div class='panel'><h3>{title}</h3>{confusion_table(scores['confusion'], scores['labels'])}</div>"
        for title, scores in (("Longform", results["test longform"]), ("Original", results["test original"]))
    )
    return (
        "<h2>What is taken for what</h2><p class='soft'>Rows are the true categories, columns the predicted ones.</p>"
        f"<div class='pair'>{panels}</div>"
    )


def _learning(results: Results) -> str:
    tuned = {"long": ("Longform", results["train longform"]), "orig": ("original", results["train original"])}
    losses = [
        Line(f"{name}, training loss", style, _smooth(_points(run["rows"], "train", "loss")))
        for style, (name, run) in tuned.items()
    ]
    scores = [
        Line(f"{name}, validation macro-F1", style, _points(run["rows"], "evaluation", "macro_f1"), marks=True)
        for style, (name, run) in tuned.items()
    ]
    healing = Line("training loss", "long", _smooth(_points(results["heal"]["rows"], "train", "loss")))
    charts = [
        line_chart("Fine-tuning: loss", losses, x="optimiser steps", y="cross-entropy"),
        line_chart("Fine-tuning: validation", scores, x="optimiser steps", y="macro-F1"),
        line_chart("Healing", [healing], x="optimiser steps", y="distance to the original"),
    ]
    return f"<h2>Learning curves</h2><div class='pair'>{_panels(charts)}</div>"


def _points(rows: Sequence[Mapping[str, Any]], event: str, value: str) -> list[tuple[float, float]]:
    return [(row["step"], row[value]) for row in rows if row["event"] == event and row.get(value) is not None]


def _smooth(points: Sequence[tuple[float, float]], width: int = 7) -> list[tuple[float, float]]:
    """Running means of ``width`` values; single batches are noisy."""
    width = max(1, min(width, len(points) // 4))
    groups = [points[at : at + width] for at in range(len(points) - width + 1)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _lengths(results: Results) -> str:
    rows = results["measure"]["rows"]
    ticks = sorted({row["length"] for row in rows if row["length"] in (64, 128) or row["length"] >= 256}) or None

    def lines(value: str) -> list[Line]:
        return [
            Line(NAMES[name], style, [(row["length"], row[value]) for row in rows if row["model"] == name
                                      and (row[value] or 0) > 0], marks=True, dashed=name == LONGER)
            for name, style in STYLES.items()
        ]  # fmt: skip

    charts = [
        line_chart("Time of one document", lines("seconds"), x="tokens", y="seconds", log=True, x_ticks=ticks),
        line_chart("Peak memory of one document", lines("mib"), x="tokens", y="MiB", log=True, x_ticks=ticks),
    ]
    return (
        f"<h2>Time and memory against length</h2><p>{escape(growth(rows))}</p><div class='pair'>{_panels(charts)}</div>"
    )


def growth(rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: what four times the length costs, and the two models at the longest length of both."""
    table = {(row["model"], row["length"]): row for row in rows}
    parts = []
    for name in (LONG, LONGER):
        lengths = sorted(length for model, length in table if model == name)
        if len(lengths) > 1:
            first, last = table[name, lengths[0]], table[name, lengths[-1]]
            times, ratio = last["seconds"] / first["seconds"], lengths[-1] / lengths[0]
            parts.append(
                f"{NAMES[name]}: {lengths[0]:,} -> {lengths[-1]:,} tokens ({ratio:.0f} x) takes {times:.1f} x the time"
            )
    both = sorted({length for model, length in table if model == LONG} & {n for model, n in table if model == LONGER})
    if both:
        at = both[-1]
        long, full = table[LONG, at], table[LONGER, at]
        parts.append(f"at {at:,} tokens {_cost(long)} instead of {_cost(full)} with full attention")
    return "; ".join(parts) + "."


def _cost(row: Mapping[str, Any]) -> str:
    memory = "" if row["mib"] is None else f" and {row['mib']:,.0f} MiB"
    return f"{row['seconds']:.2f} s{memory}"


def _panels(charts: Sequence[str]) -> str:
    return "".join(f"<div class='panel'>{chart}</div>" for chart in charts if chart)


def _next(folder: str) -> str:
    model = f"{folder}/model"
    python = (
        "import longform\nfrom transformers import pipeline\n\n"
        f'classify = pipeline("text-classification", "{model}")\n'
        'print(classify(open("LICENSE").read(), truncation=True))'
    )
    shell = (
        f"longform predict {model} FILES_OR_FOLDERS --output labels.jsonl\n\n"
        "longform convert sentence-transformers/all-MiniLM-L6-v2 my-encoder --max-length 8192\n"
        "longform distill my-encoder sentence-transformers/all-MiniLM-L6-v2 YOUR_TEXTS --output my-healed\n"
        "longform finetune my-healed train.jsonl --output my-classifier\n"
        "longform embed my-healed YOUR_TEXTS --output vectors.parquet"
    )
    return (
        "<h2>What to do next</h2><p>Use the classifier from Python:</p>"
        f"<pre>{escape(python)}</pre><p>From the shell; and the same way with your own encoder and texts:</p>"
        f"<pre>{escape(shell)}</pre>"
    )


def _how(results: Results, environment: Mapping[str, Any]) -> str:
    facts, healing, tuned = results["prepare"]["facts"], results["heal"], results["train longform"]
    data = (
        f"{facts['texts']:,} licence texts of {len(results['prepare']['labels'])} categories in {facts['groups']:,} "
        f"groups of near duplicates (the largest has {facts['largest_group']}); no group is on two sides of the split. "
        f"{facts['train']:,} texts are for training; fine-tuning takes {tuned['texts']:,} of them, at most one from "
        f"each group of near duplicates, to fit into the time. Healing read {healing['tokens']:,} tokens without "
        "labels."
    )
    steps = "".join(
        f"<tr><td>{escape(name)}</td><td class='num'>{result['seconds']:,.0f} s</td></tr>"
        for name, result in results.items() if result["seconds"] >= 1
    )  # fmt: skip
    made = "; ".join(f"{name} {value}" for name, value in environment.items())
    return (
        f"<h2>How this was made</h2><p>{escape(data)}</p><div class='panel'><table>"
        f"<thead><tr><th>step</th><th class='num'>time</th></tr></thead>{steps}</table></div>"
        f"<footer>{escape(made)}</footer>"
    )
