"""Card and learning curve of a trained folder."""

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from matplotlib.figure import Figure
from transformers import BertModel

import longform
from longform_text.training.distillation.settings import DistillationSettings
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.trainer import learning_curve

TEXTS = [f"the near text is {'good' if number % 2 else 'bad'} and long " * (1 + number % 9) for number in range(40)]


def test_a_healed_folder(student_folder: Path, teacher: BertModel, tmp_path: Path) -> None:
    settings = DistillationSettings(max_steps=2, length=32, min_length=16, heldout_documents=4, bf16=False)
    result = longform.distill(
        student_folder, teacher, TEXTS, settings=settings, output=tmp_path / "healed", progress=False
    )
    card = ModelCard.load(tmp_path / "healed" / "README.md")
    assert card.data.tags == ["longform", "linformer", "healed"]
    assert f"| after 2 steps | {result.after.cosine:.4f} |" in card.text
    assert "AutoModel" in card.text
    report = json.loads((student_folder / "conversion_report.json").read_text())
    assert f"# {Path(report['source']).name}, healed" in card.text


def test_a_classifier_s_folder(student_folder: Path, tmp_path: Path) -> None:
    labels = ["good" if number % 2 else "bad" for number in range(40)]
    settings = FinetuningSettings(max_steps=2, max_length=32, bf16=False)
    result = longform.finetune(
        student_folder, (TEXTS, labels), settings=settings, output=tmp_path / "out", progress=False
    )
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert "Labels: bad, good." in card.text
    assert f" {result.metrics['accuracy']:.4f} |" in card.text
    assert "model = AutoModelForSequenceClassification.from_pretrained(" in card.text


def test_a_learning_curve_shows_the_loss_and_what_was_measured(tmp_path, monkeypatch):
    drawn, savefig = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *file, **how: [drawn.append(figure), savefig(figure, *file, **how)]
    )
    rows = [
        {"step": 1, "loss": 3.0},
        {"step": 2, "eval_accuracy": 0.5, "eval_loss": 9.0},
        {"step": 2, "loss": 2.0},
        {"step": 2, "train_loss": 2.5},
    ]
    learning_curve(rows, "accuracy", tmp_path / "curve.png")
    lines = [line for axes in drawn[0].axes for line in axes.lines]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [line.get_xydata().tolist() for line in lines] == [[[1, 3.0], [2, 2.0]], [[2, 0.5]]]


def test_a_picture_that_fails_is_a_warning(tmp_path):
    said = r"curve\.png could not be drawn \(KeyError: 'loss'\); the rest of the run is saved"

    class Broken(dict):
        def get(self, name):
            return 1.0

    with pytest.warns(UserWarning, match=said):
        learning_curve([Broken(step=1)], "accuracy", tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
