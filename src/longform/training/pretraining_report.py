"""What a pre-training leaves behind for people: learning curve, model card, one self-contained page."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from longform.data.text import atomic_write
from longform.runs.pictures import inline_picture, new_figure, save_figure
from longform.training.model_card import architecture, data_facts, model_card, training_facts

CURVE = "learning_curve.png"
STYLE = """
body { margin:0 auto; max-width:960px; padding:32px 24px 64px; color:#1c2330; background:#fff;
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
h1 { font-size:28px; margin:0 0 6px; } h2 { font-size:21px; margin:36px 0 8px; } p { max-width:80ch; }
table { border-collapse:collapse; font-size:14.5px; } img { max-width:100%; height:auto; }
td,th { padding:5px 14px 5px 0; border-bottom:1px solid #e3e7ed; text-align:left; vertical-align:top; }
"""


def write_report(
    folder: Path, records: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], *, parameters: int
) -> None:
    """Write ``learning_curve.png``, ``README.md`` and ``report.html`` into ``folder`` from a run's records."""
    run, end = (next(row for row in records if row["event"] == event) for event in ("run", "end"))
    validation = [row for row in records if row["event"] == "validation"]
    draw_curve(records, folder / CURVE)
    with atomic_write(folder / "README.md") as file:
        file.write(model_card(run, identity, end, validation[-1], parameters=parameters))
    parts = [
        "<h1>Pre-training from scratch: masked-language model</h1>", _headline(run, validation[-1], parameters),
        inline_picture(folder / CURVE, said="training and validation loss against optimiser steps"),
        _section("Validation loss", *_curve_rows(validation)),
        _section("Architecture", *architecture(identity["model"]).items()),
        _section("Data", *data_facts(run).items()),
        _section("Training", *training_facts(identity["settings"], end, identity).items()),
        _section("Environment", *run["environment"].items()),
    ]  # fmt: skip
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>Pre-training</title><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )
    with atomic_write(folder / "report.html") as file:
        file.write(page)


def draw_curve(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Training and validation loss against optimiser steps, and the loss of predicting frequencies alone."""
    figure = new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    train = [row for row in records if row["event"] == "train"]
    measured = [row for row in records if row["event"] == "validation"]
    unigram = next(row["unigram_loss"] for row in records if row["event"] == "run")
    axes.plot([r["step"] for r in train], [r["loss"] for r in train], color="tab:blue", alpha=0.5, label="training")
    axes.plot(
        [r["step"] for r in measured], [r["loss"] for r in measured], color="tab:orange", marker="o",
        label="validation (fixed hidden tokens)",
    )  # fmt: skip
    axes.axhline(unigram, color="tab:gray", linestyle="--", label=f"predicting frequencies alone ({unigram:.2f})")
    last = measured[-1]
    axes.set_title(f"Validation loss {last['loss']:.3f} (perplexity {last['perplexity']:.1f}) at step {last['step']:,}")
    axes.set_xlabel("optimiser steps")
    axes.set_ylabel("masked-language loss (nats a hidden token)")
    axes.grid(alpha=0.25)
    axes.legend()
    save_figure(figure, path)


def _headline(run: Mapping[str, Any], last: Mapping[str, Any], parameters: int) -> str:
    return (
        f"<p>{parameters:,} parameters. After {last['step']:,} steps ({last['tokens']:,} tokens) the loss at "
        f"{run['validation_hidden_tokens']:,} held-out hidden tokens is {last['loss']:.4f} nats, perplexity "
        f"{last['perplexity']:.2f}; predicting frequencies alone would lose {run['unigram_loss']:.4f}.</p>"
    )


def _curve_rows(validation: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [
        (
            f"step {row['step']:,}",
            f"{row['loss']:.4f} nats, perplexity {row['perplexity']:.2f}, {row['seconds']:,.0f} s",
        )
        for row in validation
    ]


def _section(title: str, *rows: tuple[str, Any]) -> str:
    shown = ((name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in rows)
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in shown)
    return f"<h2>{escape(title)}</h2><table>{cells}</table>"
