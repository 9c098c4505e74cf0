"""The model card of a trained folder: what it was made from, what it was taught, how good it is."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from longform.conversion.report import OWN_FILE
from longform.errors import CheckpointError
from longform.files import read_json, write_text
from longform.models.configuration_linformer import LinformerConfig
from longform.pretrained.model_card import (
    Code,
    Heading,
    Table,
    architecture,
    facts_table,
    is_hub_name,
    loading,
    model_card,
)
from longform.pretrained.sentence_folder import MODULES_FILE, loader_of, settings_of
from longform_text.training.settings import TrainingSettings
from longform_text.training.students import Student

LICENCE = "Licence and language are those of what it was made from, and of the texts: say them here before you publish."

HELD_OUT = "On texts that were not trained on; records.jsonl has every measurement, learning_curve.png shows them."


def write_card(
    folder: Path,
    opened: Student,
    done: str,
    about: str,
    settings: TrainingSettings,
    scores: Mapping[str, Mapping[str, float]],
) -> None:
    """Write ``README.md`` of a trained model; ``done``: what was done with it, in a word; ``about``: in a paragraph;
    ``scores``: of several moments or models, a row each.
    """
    model, base = opened.model, _base(opened)
    head = re.search(r"For[A-Z]\w*$", type(model).__name__)
    auto = f"AutoModel{head[0] if head else ''}"
    loader = loader_of(settings_of(folder)) if (folder / MODULES_FILE).is_file() else None
    is_longform = model.config.model_type == LinformerConfig.model_type
    shape = [Heading("Architecture"), facts_table(architecture(model.config.to_dict()))] if is_longform else []
    evaluation = [Heading("Evaluation"), HELD_OUT, _scores_table(scores)] if scores else []
    training = [Heading("Training"), facts_table(settings.described())]
    use = [Heading("Use"), Code(loading(auto, loader), "python"), LICENCE]
    card = model_card(
        f"{short_name(base) or type(model).__name__}, {done}",
        [about, *evaluation, *training, *shape, *use],
        base=base,
        tags=[done],
        library="transformers" if loader is None else "sentence-transformers",
    )
    write_text(folder / "README.md", card)


def _scores_table(scores: Mapping[str, Mapping[str, float]]) -> Table:
    heads = [name.replace("_", " ") for name in next(iter(scores.values()))]
    return Table(["", *heads], [[when, *(f"{x:.4f}" for x in each.values())] for when, each in scores.items()])


def _base(opened: Student) -> str:
    """The model that a conversion began with, where that is known, else the name of what was trained."""
    report = getattr(opened.origin, "report", None)
    if report is not None:
        return str(report.source)
    name = str(opened.origin or opened.model.config._name_or_path or "")
    with contextlib.suppress(CheckpointError):  # no report, or a damaged one, is no reason to lose what was trained
        return str(read_json(Path(name, OWN_FILE), way_out="")["source"])
    return name


def short_name(name: str) -> str:
    """A hub name as it is, of a folder its own name."""
    return name if is_hub_name(name) else Path(name).name
