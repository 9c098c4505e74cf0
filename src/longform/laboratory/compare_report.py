"""``report.html`` and ``table.md`` of a comparison, made from its results."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from longform.data.pictures import inline_picture
from longform.data.text import atomic_write
from longform.laboratory.architectures import ARCHITECTURES
from longform.laboratory.memory import texts_at_once
from longform.laboratory.results import Result
from longform.laboratory.sequences import SequenceTask

STYLE = """
body { margin:0 auto; max-width:1080px; padding:32px 24px 64px; color:#1c2330; background:#fff;
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
h1 { font-size:30px; margin:0 0 6px; } h2 { font-size:22px; margin:44px 0 8px; }
p { max-width:80ch; } table { border-collapse:collapse; font-size:14.5px; font-variant-numeric:tabular-nums; }
th,td { padding:5px 11px; border-bottom:1px solid #e3e7ed; text-align:right; } th { color:#5d6879; font-weight:600; }
th:first-child,td:first-child { text-align:left; } img { max-width:100%; height:auto; }
.soft { color:#5d6879; } .wide { overflow-x:auto; }
"""
COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("architecture", lambda result: result.title),
    ("accuracy, %", lambda result: _number(result.accuracy, ".2f", 100)),
    ("macro-F1, %", lambda result: _number(result.macro_f1, ".2f", 100)),
    ("training, processor s", lambda result: _number(result.cpu_seconds, ",.0f")),
    ("training, wall-clock s", lambda result: _number(result.seconds, ",.0f")),
    ("testing, ms a text", lambda result: _number(result.milliseconds_per_text, ",.1f")),
    ("memory of a step, MiB", lambda result: _number(result.memory_mib, ",.0f")),
    ("parameters", lambda result: _number(result.parameters, ",d")),
)


def _number(value: float | None, form: str, factor: float = 1) -> str:
    return "–" if value is None else format(value * factor if factor != 1 else value, form)


def markdown_table(results: Sequence[Result]) -> str:
    """The table as a document has it; a skipped architecture says why below."""
    heads = [name for name, _ in COLUMNS]
    lines = [_line(heads), _line(["---"] + ["--:"] * (len(heads) - 1))]
    lines += [_line([show(result) for _, show in COLUMNS]) for result in results if not result.skipped]
    lines += [f"\n{said}" for said in left_out(results)]
    return "\n".join(lines) + "\n"


def left_out(results: Sequence[Result]) -> list[str]:
    """What was not measured, and why."""
    skipped = [f"{result.title}: not run, {result.skipped}" for result in results if result.skipped]
    return skipped + [
        f"{result.title}: memory not measured, {result.memory_reason}" for result in results if result.memory_reason
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write_report(results: Sequence[Result], task: SequenceTask, settings: dict[str, Any], output: Path) -> None:
    """Write both; the picture is in ``output`` already."""
    with atomic_write(output / "table.md") as file:
        file.write(markdown_table(results))
    picture = inline_picture(output / "comparison.png", said="test accuracy against training time, a mark each")
    parts = [
        f"<h1>Architectures side by side: {escape(task.name)}</h1>", _lead(task, settings), picture,
        f"<h2>Results</h2><div class='wide'>{_table(results)}</div>", _skipped(results),
        f"<h2>Who is who</h2><div class='wide'>{_sources(results, settings)}</div>", _settings(results, settings),
    ]  # fmt: skip
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>Comparison</title><style>{STYLE}</style>'
        f"</head><body>{''.join(parts)}</body></html>\n"
    )
    with atomic_write(output / "report.html") as file:
        file.write(page)


def _lead(task: SequenceTask, settings: dict[str, Any]) -> str:
    counts = [len(part.labels) for part in (task.train, task.validation, task.test)]
    lengths = task.train.lengths
    at_once = texts_at_once(settings["batch_size"], settings["tokens_per_forward"], settings["length"])
    return (
        f"<p>{counts[0]:,} sequences to train on, {counts[1]:,} to choose the best weights, {counts[2]:,} to test; "
        f"{len(task.train.names)} classes; {min(lengths):,} to {max(lengths):,} tokens, "
        f"{sum(lengths) / counts[0]:,.0f} on average. All architectures have {settings['layers']} layers of width "
        f"{settings['hidden_size']} with {settings['heads']} heads, the same vocabulary, the same pooling "
        f"({settings['pooling']}) and head, and see the same {settings['steps']:,} batches of "
        f"{settings['batch_size']}, from random weights. Time is that of the training "
        "steps; memory the peak of one float32 forward and backward pass over the texts "
        f"of full length that go through the model at once ({at_once}). Reformer's head is twice as wide, as its "
        "output is. Not the same is where the architectures normalise: see below.</p>"
    )


def _table(results: Sequence[Result]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name, _ in COLUMNS)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(show(result))}</td>' for _, show in COLUMNS)}</tr>"
        for result in results if not result.skipped
    )  # fmt: skip
    return f"<table><thead><tr>{heads}</tr></thead>{rows}</table>"


def _skipped(results: Sequence[Result]) -> str:
    return "".join(f"<p>{escape(said)}</p>" for said in left_out(results))


def _sources(results: Sequence[Result], settings: dict[str, Any]) -> str:
    heads = ("", "code from", "pads a batch to", "normalises")
    rows = [
        (result.title, result.source, result.pads, _normalises(result.name, settings["normalization"]))
        for result in results
    ]
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>{body}</table>"


def _normalises(name: str, ours: str) -> str:
    """Where an architecture has its layer norms; ``ours``: "pre" or "post", of Longform's own models."""
    if name not in ARCHITECTURES:
        return "–"
    return "before each part" if (ARCHITECTURES[name].norm or ours) == "pre" else "after each part"


def _settings(results: Sequence[Result], settings: dict[str, Any]) -> str:
    chosen = ", ".join(f"{name} {value}" for name, value in settings.items())
    hardware = next((result.surroundings.get("hardware") for result in results if result.surroundings), None) or {}
    ran = ", ".join(f"{name} {value}" for name, value in hardware.items())
    return f'<p class="soft">Settings: {escape(chosen)}. Ran on: {escape(ran)}.</p>'
