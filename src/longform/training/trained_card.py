"""The model card of a distilled or fine-tuned folder: what it was made from, what it was taught, how good it is."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longform.conversion.report import OWN_FILE
from longform.conversion.sentence_transformers_folder import MODULES_FILE, loader_of
from longform.errors import CheckpointError
from longform.inference.sentence_modules import settings_of
from longform.models.configuration_linformer import LinformerConfig
from longform.runs.files import read_json, write_text
from longform.runs.page import Block, Code, Heading, Table, architecture, facts_table, is_hub_name, loading, model_card
from longform.training.students import Student

LICENCE = "Licence and language are those of what it was made from, and of the texts: say them here before you publish."


def write_healed_card(
    folder: Path,
    opened: Student,
    teacher: str,
    *,
    trained_tokens: int,
    heldout: tuple[int, int],
    agreement: Mapping[str, Mapping[str, float]],
) -> None:
    """Write ``README.md`` of a student that its original, ``teacher``, has taught.

    ``agreement``: cosine and error before and after, measured on ``heldout`` documents and tokens.
    """
    table = [[when, *(f"{value:.4f}" for value in found.values())] for when, found in agreement.items()]
    taught = f"`{_short(teacher)}`" if teacher else "its original"
    _write(
        folder,
        opened,
        "healed",
        [
            f"A Longform that {taught} has taught on {trained_tokens:,} tokens of text without labels (longform "
            "distill): long texts get nearly the states that the original has for their windows.",
            Heading("Agreement with the original"),
            f"On {heldout[0]:,} documents ({heldout[1]:,} tokens) that were held out: cosine of "
            "mean-pooled states, and squared error of hidden states over their squared size, mean over layers.",
            Table(["", "cosine", "error"], table),
        ],
    )


def write_aligned_card(
    folder: Path,
    opened: Student,
    *,
    steps: int,
    documents: int,
    scores: Mapping[str, Mapping[str, float]],
    heldout: tuple[int, int],
) -> None:
    """Write ``README.md`` of an encoder that has learned to find documents by queries (longform align).

    ``scores``: nDCG and the cosine of short texts before and after, on ``heldout`` queries and documents.
    """
    measured: list[Block] = (
        [
            Heading("Evaluation"),
            f"On {heldout[1]:,} documents that were held out, with {heldout[0]:,} queries: nDCG@10 among the documents "
            "of the same source, and the cosine between the vectors that short texts have and had.",
            Table(
                ["", "nDCG@10", "short texts"],
                [[when, *(f"{x:.4f}" for x in each.values())] for when, each in scores.items()],
            ),
        ]
        if scores
        else []
    )
    _write(
        folder,
        opened,
        "aligned",
        [
            f"{'A Longform' if _is_longform(opened) else 'An encoder'} that has learned to find long documents by "
            f"queries (longform align: contrastive, {steps:,} steps of {documents:,} documents in all).",
            *measured,
        ],
    )


def write_classifier_card(folder: Path, opened: Student, task: str, end: Mapping[str, Any], validation: int) -> None:
    """Write ``README.md`` of a fine-tuned model; ``end``: its last scores, on ``validation`` texts."""
    left_out = ("event", "step", "labels", "confusion", "best_step", "texts_truncated")
    scores = {
        name.replace("_", " "): f"{value:.4f}"
        for name, value in end.items()
        if name not in left_out and isinstance(value, int | float)
    }
    labels = [str(name) for name in (opened.model.config.id2label or {}).values()]
    shown = ", ".join(labels[:20]) + (f" and {len(labels) - 20:,} more" if len(labels) > 20 else "")
    what = "It gives a number." if task == "regression" else f"Labels: {shown}."
    _write(
        folder,
        opened,
        "fine-tuned",
        [
            f"{'A Longform' if _is_longform(opened) else 'An encoder'} fine-tuned on labelled texts ({task}, longform "
            f"finetune). {what}",
            Heading("Evaluation"),
            f"On {validation:,} texts that were not trained on, but chose the best step:",
            facts_table(scores),
        ],
    )


def _write(folder: Path, opened: Student, done: str, blocks: list[Block]) -> None:
    model, base = opened.model, _base(opened)
    head = re.search(r"For[A-Z]\w*$", type(model).__name__)
    auto = f"AutoModel{head[0] if head else ''}"
    loader = loader_of(settings_of(folder)) if (folder / MODULES_FILE).is_file() else None
    shape = [Heading("Architecture"), facts_table(architecture(model.config.to_dict()))] if _is_longform(opened) else []
    use = [Heading("Use"), Code(loading(auto, loader), "python"), LICENCE]
    write_text(
        folder / "README.md",
        model_card(
            f"{_short(base) or type(model).__name__}, {done}",
            [*blocks, *shape, *use],
            base=base,
            tags=[done],
            library="transformers" if loader is None else "sentence-transformers",
        ),
    )


def _base(opened: Student) -> str:
    """The model that a conversion began with, where that is known, else the name of what was trained."""
    report = getattr(opened.origin, "report", None)
    if report is not None:
        return str(report.source)
    name = str(opened.origin or opened.model.config._name_or_path or "")
    with contextlib.suppress(CheckpointError):  # no report, or a damaged one, is no reason to lose what was trained
        return str(read_json(Path(name, OWN_FILE), way_out="")["source"])
    return name


def _short(name: str) -> str:
    return name if is_hub_name(name) else Path(name).name


def _is_longform(opened: Student) -> bool:
    return opened.model.config.model_type == LinformerConfig.model_type
