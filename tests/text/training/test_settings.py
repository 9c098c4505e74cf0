"""Settings and presets of trainings: values that cannot be, and files that are no preset."""

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainingArguments

from longform.errors import ConfigurationError
from longform.functional.conditions import native_bfloat16
from longform.models.configuration_linformer import LinformerConfig
from longform_text.training.alignment.settings import AlignmentSettings
from longform_text.training.distillation.settings import DistillationSettings
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.pretraining.settings import load_preset, preset_names
from longform_text.training.run import training_arguments
from longform_text.training.settings import argument_types
from longform_text.training.trainer import Saves


@pytest.mark.parametrize(
    ("kind", "changed", "named"),
    [
        (DistillationSettings, {"max_minutes": -1}, "max_minutes=-1"),
        (DistillationSettings, {"learning_rate": 0.0}, "learning_rate=0.0 must be more than 0"),
        (DistillationSettings, {"length": 100}, "min_length=128 is more than length=100"),
        (AlignmentSettings, {"same_document_negatives": 0.5}, "same_document_negatives are passages: give passage_tok"),
        (AlignmentSettings, {"passage_tokens": 8, "same_document_negatives": 1.5}, r"same_document_negatives=1\.5"),
        (FinetuningSettings, {"task": "ranking"}, 'task="ranking"'),
        (FinetuningSettings, {"per_device_train_batch_size": 0}, "per_device_train_batch_size=0"),
        (
            FinetuningSettings,
            {"num_train_epochs": float("inf")},
            "num_train_epochs=inf must be more than 0, and finite",
        ),
        (FinetuningSettings, {"num_train_epochs": float("nan")}, "num_train_epochs=nan must be more than 0"),
        (FinetuningSettings, {"classifier_pooling": "max"}, 'classifier_pooling="max"; it is one of cls, mean, lead'),
        (
            FinetuningSettings,
            {"learning_rte": 1},
            r'no setting "learning_rte" in FinetuningSettings; did you mean "learning_rate"',
        ),
        (FinetuningSettings, {"validation_fraction": 1.0}, "validation_fraction=1.0"),
    ],
)
def test_values_that_cannot_be(kind: type, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        kind(**changed)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"epochs": 2}, {"num_train_epochs": 2}),
        ({"batch_size": 3, "warmup": 0.2}, {"per_device_train_batch_size": 3, "warmup_steps": 0.2}),
        ({"schedule": "constant"}, {"lr_scheduler_type": "constant_with_warmup"}),
        ({"dtype": "float32", "device": "cpu"}, {"bf16": False, "use_cpu": True}),
        ({"dtype": "auto", "device": "auto"}, {}),
        ({"evaluations": 0}, {"eval_strategy": "no"}),
        ({"evaluations": 3}, {"eval_steps": 0.25}),
        ({"save_every_steps": 5, "metric": "loss"}, {"save_steps": 5, "metric_for_best_model": "loss"}),
    ],
)
def test_names_of_before_are_understood(before: dict[str, Any], now: dict[str, Any]) -> None:
    with pytest.warns(FutureWarning, match="is called .* now, as in transformers"):
        settings = FinetuningSettings(**before)
    assert settings.arguments == now
    with pytest.warns(FutureWarning, match="early_stopping is called early_stopping_patience"):
        assert FinetuningSettings(early_stopping=2).early_stopping_patience == 2


def test_fields_of_training_arguments_are_those_that_transformers_has() -> None:
    known = {each.name for each in fields(TrainingArguments)}
    assert set(argument_types()) == known - {"output_dir", "do_train", "do_eval", "do_predict", "local_rank"}
    settings = FinetuningSettings(report_to="none", learning_rate=1e-3)
    changed = replace(settings, learning_rate=2e-3, task="regression")
    assert changed.arguments == {"report_to": "none", "learning_rate": 2e-3}
    assert (changed.task, settings.argument("learning_rate"), settings.argument("num_train_epochs")) == (
        "regression", 1e-3, 3.0,
    )  # fmt: skip


def test_what_transformers_refuses_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TrainingArguments: step is not a valid SchedulerType"):
        training_arguments(FinetuningSettings(lr_scheduler_type="step"), tmp_path)
    made = training_arguments(FinetuningSettings(use_cpu=True), tmp_path)
    assert made.bf16 == native_bfloat16(torch.device("cpu"))
    assert not training_arguments(FinetuningSettings(bf16=False), tmp_path).bf16


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_a_model_that_can_be_made(name: str) -> None:
    preset = load_preset(name)
    config = LinformerConfig(**preset.model, vocab_size=preset.tokenizer.vocab_size)
    assert config.max_position_embeddings <= preset.training.tokens_per_step
    assert preset.description


def test_the_base_preset_has_roberta_s_size() -> None:
    preset = load_preset("base")
    assert (preset.model["hidden_size"], preset.tokenizer.vocab_size, preset.training.argument("learning_rate")) == (
        768,
        50_265,
        5e-4,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model: {hidden: 3}", r"model 'hidden', which is not known; there are .*hidden_size"),
        ("optimiser: {}", "part 'optimiser', which is not known"),
        ("training: {steps: 3}", 'no setting "steps" in PretrainingSettings'),
        ("model: true", "the part model .* has to be fields"),
        ("training: {objective: null}", 'objective="None"; it is one of masked, causal'),
        ("training: {length: 1e999}", "the part training .* a value that cannot be"),
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


@pytest.mark.parametrize(("options", "said"), [
    ({"max_tokens": 5}, "give max_steps"), ({"dtype": "bf16"}, "bf16=True or False"),
    ({"device": "cuda:1"}, "CUDA_VISIBLE_DEVICES=1"),
])  # fmt: skip
def test_values_of_before_that_mean_nothing_now_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        FinetuningSettings(**options)


def test_one_length_of_a_run_takes_the_place_of_another() -> None:
    preset = load_preset("tiny").training
    assert preset.argument("max_steps") == 3000
    assert replace(preset, num_train_epochs=2).argument("max_steps") is None
    with pytest.raises(ConfigurationError, match="give max_steps"):
        DistillationSettings(num_train_epochs=2)


@pytest.mark.parametrize(("steps", "saved"), [(0.1, [4, 8]), (0.25, [10, 20]), (7, [7, 14])])
def test_parts_of_all_steps_and_steps_say_when_a_checkpoint_is_saved(steps: float, saved: list[int]) -> None:
    found, arguments = [], SimpleNamespace(save_strategy="steps")
    for step in range(1, 41):
        control = SimpleNamespace(should_save=False)
        Saves(steps).on_step_end(arguments, SimpleNamespace(global_step=step, max_steps=40), control)
        found += [step] if control.should_save else []
    assert found[:2] == saved
