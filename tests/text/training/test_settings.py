"""Settings and presets of trainings: values that cannot be, and files that are no preset."""

from pathlib import Path
from typing import Any

import pytest
import torch

from longform.errors import ConfigurationError
from longform.models.configuration_linformer import LinformerConfig
from longform_text.training.engine.settings import DistillationSettings, FinetuningSettings, compute_dtype
from longform_text.training.pretraining.settings import load_preset, preset_names


@pytest.mark.parametrize(
    ("kind", "changed", "named"),
    [
        (DistillationSettings, {"max_minutes": -1}, "max_minutes=-1"),
        (DistillationSettings, {"learning_rate": 0.0}, "learning_rate=0.0 must be more than 0"),
        (DistillationSettings, {"warmup": 1.5}, "warmup=1.5 must be between 0 and 1"),
        (DistillationSettings, {"schedule": "step"}, 'schedule="step"; it is one of cosine, linear, constant'),
        (DistillationSettings, {"dtype": "float16"}, 'dtype="float16"'),
        (DistillationSettings, {"length": 100}, "min_length=128 is more than length=100"),
        (DistillationSettings, {"max_tokens": -1}, "max_tokens=-1"),
        (DistillationSettings, {"evaluations": -1}, "evaluations=-1"),
        (FinetuningSettings, {"task": "ranking"}, 'task="ranking"'),
        (FinetuningSettings, {"batch_size": 0}, "batch_size=0"),
        (FinetuningSettings, {"epochs": float("inf")}, "epochs=inf must be more than 0, and finite"),
        (FinetuningSettings, {"epochs": float("nan")}, "epochs=nan must be more than 0"),
        (FinetuningSettings, {"metric": "f1"}, 'metric="f1"'),
        (FinetuningSettings, {"classifier_pooling": "max"}, 'classifier_pooling="max"; it is one of cls, mean, lead'),
        (FinetuningSettings, {"save_every_steps": 0}, "save_every_steps=0 must be more than 0"),
        (FinetuningSettings, {"validation_fraction": 1.0}, "validation_fraction=1.0"),
    ],
)
def test_values_that_cannot_be(kind: type, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        kind(**changed)


def test_dtypes() -> None:
    cpu = torch.device("cpu")
    assert compute_dtype("float32", cpu) is torch.float32
    assert compute_dtype("bfloat16", cpu) is torch.bfloat16
    assert compute_dtype("auto", cpu) in (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_a_model_that_can_be_made(name: str) -> None:
    preset = load_preset(name)
    config = LinformerConfig(**preset.model, vocab_size=preset.tokenizer.vocab_size)
    assert config.max_position_embeddings <= preset.training.tokens_per_step
    assert preset.description


def test_the_base_preset_has_roberta_s_size() -> None:
    preset = load_preset("base")
    assert (preset.model["hidden_size"], preset.tokenizer.vocab_size, preset.training.learning_rate) == (
        768,
        50_265,
        5e-4,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model: {hidden: 3}", r"model 'hidden', which is not known; there are .*hidden_size"),
        ("optimiser: {}", "part 'optimiser', which is not known"),
        ("training: {steps: 3}", "training 'steps', which is not known"),
        ("model: true", "model: True, which is not settings by name"),
        ("training: {seed: null}", "seed: None in training; it takes int"),
        ("training: {max_steps: 1e999}", "max_steps: '1e999' in training; it takes int or nothing"),
        ("tokenizer: {lowercase: 1}", "lowercase: 1 in tokenizer; it takes bool"),
        ("[1", "not valid YAML"),
        ("3", "has no parts"),
        ("&a [*a]", "has no parts"),
        ("model: " + "1" * 5000, "not valid YAML"),
        ("model: 2001-99-99", "not valid YAML"),
        ("[" * 3000, "not valid YAML"),
    ],
)
def test_files_that_are_no_preset(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        load_preset(tmp_path / "mine.yaml")
