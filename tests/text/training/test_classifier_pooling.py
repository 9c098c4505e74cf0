"""What the classifier of a fine-tuned Longform sees."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertModel

from longform.choices import POOLINGS
from longform.errors import ConfigurationError
from longform_text.training.finetuning.run import FinetuningResult, finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.labels import Examples

EXAMPLES = Examples(["a good text", "a bad text of it"] * 8, ["good", "bad"] * 8)


def _run(model: Any, pooling: str | None, tokenizer: Any = None, **options: Any) -> FinetuningResult:
    settings = FinetuningSettings(
        max_steps=1, per_device_train_batch_size=4, validation_fraction=0.25, classifier_pooling=pooling
    )
    return finetune(model, EXAMPLES, settings, tokenizer=tokenizer, progress=False, **options)


@pytest.mark.parametrize("pooling", [None, *POOLINGS])
def test_a_new_classifier_sees_what_was_asked_for(pooling: str | None, student_folder: Path, tmp_path: Path) -> None:
    trained = _run(student_folder, pooling, output=tmp_path / "run").model
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    for model in (trained, loaded):
        assert model.config.classifier_pooling == model.classifier.pool.kind == (pooling or "cls")
        assert model.classifier.dense.in_features == (40 if pooling in ("cls_mean", "cls_lead") else 20)
    kept = AutoModel.from_pretrained(student_folder).embeddings.word_embeddings.weight
    assert torch.allclose(loaded.linformer.embeddings.word_embeddings.weight, kept, atol=1e-3)


def test_a_classifier_keeps_its_own(student_folder: Path, tmp_path: Path) -> None:
    _run(student_folder, "mean", output=tmp_path / "classifier")
    said = r'classifier_pooling="lead", but .*classifier" has a classifier already, which sees "mean": leave it out'
    with pytest.raises(ConfigurationError, match=said):
        _run(tmp_path / "classifier", "lead")
    assert _run(tmp_path / "classifier", None).model.config.classifier_pooling == "mean"
    assert _run(tmp_path / "classifier", "mean").model.config.classifier_pooling == "mean"


def test_models_in_memory(student_folder: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(student_folder)
    classifier = _run(AutoModel.from_pretrained(student_folder), "lead", tokenizer).model
    assert classifier.config.classifier_pooling == "lead"
    with pytest.raises(ConfigurationError, match="the LinformerForSequenceClassification has a classifier already"):
        _run(classifier, "cls", tokenizer)


def test_other_models_have_none(teacher: BertModel, tiny_tokenizer: Any) -> None:
    with pytest.raises(ConfigurationError, match="is for Longforms, and the BertModel is a model of type 'bert'"):
        _run(teacher, "mean", tiny_tokenizer)
