"""The model cards of trained folders say what was done, and how good it is, from the run's records."""

import json
from pathlib import Path

from huggingface_hub import ModelCard
from transformers import BertModel

import longform
from longform.training.engine.settings import DistillationSettings, FinetuningSettings

TEXTS = [f"the near text is {'good' if number % 2 else 'bad'} and long " * (1 + number % 9) for number in range(40)]


def test_a_healed_folder(student_folder: Path, teacher: BertModel, tmp_path: Path) -> None:
    settings = DistillationSettings(max_steps=2, length=32, min_length=16, heldout_documents=4, dtype="float32")
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
    settings = FinetuningSettings(max_steps=2, max_length=32, dtype="float32")
    result = longform.finetune(
        student_folder, (TEXTS, labels), settings=settings, output=tmp_path / "out", progress=False
    )
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert "Labels: bad, good." in card.text
    assert f"| accuracy | {result.metrics['accuracy']:.4f} |" in card.text
    assert "model = AutoModelForSequenceClassification.from_pretrained(" in card.text
