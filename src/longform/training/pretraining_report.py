"""What a pre-training leaves behind for people: learning curve, model card, one self-contained page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.files import write_text
from longform.runs.page import Heading, Picture, facts_table, write_page
from longform.runs.pictures import new_figure, save_figure
from longform.training.model_card import architecture, data_facts, model_card, training_facts

CURVE = "learning_curve.png"


def write_report(
    folder: Path, records: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], *, parameters: int
) -> None:
    """Write ``learning_curve.png``, ``README.md`` and ``report.html`` into ``folder`` from a run's records."""
    run, end = (next(row for row in records if row["event"] == event) for event in ("run", "end"))
    validation = [row for row in records if row["event"] == "validation"]
    draw_curve(records, folder / CURVE)
    write_text(folder / "README.md", model_card(run, identity, end, validation[-1], parameters=parameters))
    tables = {
        "Validation loss": _curve_rows(validation), "Architecture": architecture(identity["model"]),
        "Data": data_facts(run), "Training": training_facts(identity["settings"], end, identity),
        "Environment": run["environment"],
    }  # fmt: skip
    blocks = [
        _headline(run, validation[-1], parameters),
        Picture.read(folder / CURVE, "training and validation loss against optimiser steps"),
        *(block for title, facts in tables.items() for block in (Heading(title), facts_table(facts))),
    ]
    write_page(folder / "report.html", "Pre-training from scratch: masked-language model", blocks)


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
        f"{parameters:,} parameters. After {last['step']:,} steps ({last['tokens']:,} tokens) the loss at "
        f"{run['validation_hidden_tokens']:,} held-out hidden tokens is {last['loss']:.4f} nats, perplexity "
        f"{last['perplexity']:.2f}; predicting frequencies alone would lose {run['unigram_loss']:.4f}."
    )


def _curve_rows(validation: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        f"step {row['step']:,}": f"{row['loss']:.4f} nats, perplexity {row['perplexity']:.2f}, {row['seconds']:,.0f} s"
        for row in validation
    }
