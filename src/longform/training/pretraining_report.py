"""The report of a pre-training: learning curve, model card, one self-contained page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.files import write_text
from longform.runs.model_card import model_card
from longform.runs.page import Heading, Picture, facts_table, write_page
from longform.runs.pictures import finish, picture
from longform.training.counted_losses import counted_losses
from longform.training.model_card import described_model, title_of

CURVE = "learning_curve.png"


def write_report(
    folder: Path, records: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], *, parameters: int
) -> None:
    """Write ``learning_curve.png``, ``README.md`` and ``report.html`` into ``folder`` from a run's records."""
    run, end = (next(row for row in records if row["event"] == event) for event in ("run", "end"))
    validation = [row for row in records if row["event"] == "validation"]
    draw_curve(records, folder / CURVE)
    title, blocks = title_of(identity, parameters), described_model(run, identity, end, validation[-1])
    write_text(folder / "README.md", model_card(title, blocks, task="fill-mask", tags=["masked-lm"]))
    curve = {
        f"step {row['step']:,}": f"{row['loss']:.4f} nats, perplexity {row['perplexity']:.2f}, {row['seconds']:,.0f} s"
        for row in validation
    }
    seen = Picture.read(folder / CURVE, "training and validation loss against optimiser steps")
    lead, *rest = blocks
    write_page(folder / "report.html", title, [lead, seen, Heading("Validation loss"), facts_table(curve), *rest])


def draw_curve(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Training and validation loss against optimiser steps, and what counting alone loses."""
    train = [row for row in records if row["event"] == "train"]
    measured = [row for row in records if row["event"] == "validation"]
    run, last = next(row for row in records if row["event"] == "run"), measured[-1]
    title = f"Validation loss {last['loss']:.3f} (perplexity {last['perplexity']:.1f}) at step {last['step']:,}"
    with picture(path, 7.2, 4.4) as axes:
        for rows, style in (
            (train, {"color": "tab:blue", "alpha": 0.5, "label": "training"}),
            (measured, {"color": "tab:orange", "marker": "o", "label": "validation (fixed hidden tokens)"}),
        ):
            axes.plot([row["step"] for row in rows], [row["loss"] for row in rows], **style)
        for (said, loss), style in zip(counted_losses(run).items(), ("--", ":"), strict=False):
            axes.axhline(loss, color="tab:gray", linestyle=style, label=f"{said} ({loss:.2f})")
        finish(axes, title, "optimiser steps", "masked-language loss (nats a hidden token)")
