import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from shared_trainings import STILL
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertModel

from longform.errors import ConfigurationError, DataError
from longform_text.training.finetuning.run import FinetuningResult, finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.labels import Examples
from longform_text.training.run import measured

KINDS = ("bad", "good", "long")
SETTINGS = FinetuningSettings(
    num_train_epochs=4,
    per_device_train_batch_size=8,
    learning_rate=3e-3,
    tokens_per_forward=256,
    validation_fraction=0.25,
    bf16=False,
)


def _texts(count: int = 80) -> Examples:
    draw = random.Random(1)
    labels = [draw.choice(KINDS) for _ in range(count)]
    rest = ["the", "a", "of", "text", "it"]
    return Examples([" ".join(draw.choices([*rest, x, x], k=draw.randint(4, 28))) for x in labels], labels)


def _run(model: Any, tokenizer: Any, examples: Any, settings: Any = SETTINGS, **options: Any) -> FinetuningResult:
    return finetune(model, examples, settings, tokenizer=tokenizer, progress=False, **options)


LEARNING = replace(SETTINGS, num_train_epochs=10, classifier_pooling="mean")  # its seeds 0 and 1 reach 1.0 and 0.9


def test_what_is_frozen_in_a_given_model_is_not_trained(student_folder: Path, tiny_tokenizer: Any) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(student_folder, num_labels=3)
    before = {name: p.detach().clone() for name, p in model.base_model.named_parameters()}
    frozen = next(name for name, p in model.base_model.named_parameters() if p.dim() == 2)
    model.base_model.get_parameter(frozen).requires_grad_(False)
    after = dict(
        _run(
            model, tiny_tokenizer, _texts(24), replace(SETTINGS, num_train_epochs=1)
        ).model.base_model.named_parameters()
    )
    assert torch.equal(after[frozen], before[frozen])
    assert sum(not torch.equal(after[name], value) for name, value in before.items()) > len(before) // 2


def test_a_classifier_is_learned_saved_and_found_again(student_folder: Path, tmp_path: Path) -> None:
    result = _run(student_folder, None, _texts(), LEARNING, output=tmp_path / "run")
    assert result.task == "single-label"
    assert result.labels == list(KINDS)
    assert result.metrics["accuracy"] > 0.8
    assert sum(map(sum, result.metrics["confusion"])) == 20
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"metrics.json", "records.jsonl", "tokenizer.json"} <= files
    assert not any("checkpoint" in name for name in files)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert loaded.config.id2label == dict(enumerate(KINDS))
    torch.testing.assert_close(loaded.state_dict(), result.model.state_dict(), rtol=0, atol=0)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["accuracy"] == result.metrics["accuracy"]


def test_the_best_step_is_kept(student_folder: Path) -> None:
    settings = replace(SETTINGS, learning_rate=2e-2, num_train_epochs=6, metric_for_best_model="loss")
    held = _texts(20)
    result = _run(student_folder, None, _texts(), settings, validation=(held.texts, held.labels))
    losses = {row["step"]: row["loss"] for row in measured(result.records, "macro_f1")}
    assert result.metrics["best_step"] == min(losses, key=losses.__getitem__)
    given = result.tokenizer(held.texts, padding=True, return_tensors="pt")
    targets = torch.tensor([KINDS.index(label) for label in held.labels])
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(result.model(**given).logits, targets)
    assert result.metrics["loss"] == pytest.approx(float(loss), abs=1e-5)


def test_what_was_understood_is_said_before_training(
    student_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Examples(["good text", "bad text", "good " * 90, "bad"], ["good", "bad", "good", "bad"])
    options: Any = {"progress": True, "validation": few.take([0, 1, 2])}
    finetune(student_folder, few, replace(SETTINGS, max_steps=1, use_cpu=True), output=tmp_path / "run", **options)
    said = next(line for line in re.split("[\r\n]", capsys.readouterr().err) if "classes" in line)
    assert said.strip() == "2 classes: bad, good; 4 to train on, 3 held out, 2 cut at 64 tokens"
    assert "use_cpu" not in json.loads((tmp_path / "run" / "run.json").read_text())["settings"]


def test_any_encoder_can_be_trained_and_is_left_alone(teacher: BertModel, tiny_tokenizer: Any) -> None:
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    result = _run(teacher, tiny_tokenizer, _texts(), replace(SETTINGS, max_length=16, num_train_epochs=1))
    assert type(result.model).__name__ == "BertForSequenceClassification"
    assert result.truncated > 0
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_multi_label(student_folder: Path) -> None:
    examples = _texts()
    several = examples._replace(
        labels=[[label, "x"] if "of" in text else [label] for text, label in zip(*examples[:2], strict=True)]
    )
    result = _run(student_folder, None, several, LEARNING)
    assert result.labels == ["bad", "good", "long", "x"]
    losses = [row["loss"] for row in result.records if "loss" in row]
    assert losses[-1] < losses[0]
    assert 0 < result.metrics["micro_f1"] <= 1
    assert result.model.config.problem_type == "multi_label_classification"


def test_regression_of_pairs(student_folder: Path) -> None:
    examples = _texts()
    scores = [{"bad": -1.0, "good": 1.0, "long": 0.25}[label] for label in examples.labels]
    result = _run(student_folder, None, examples._replace(labels=scores, pairs=examples.texts))
    assert result.metrics["spearman"] > 0.5
    assert result.model.config.num_labels == 1


@pytest.mark.parametrize(
    ("stop", "changes", "left"),
    [
        (7, {"eval_strategy": "steps", "eval_steps": 4}, {"checkpoint-4", "checkpoint-6"}),
        pytest.param(16, {"eval_strategy": "steps", "eval_steps": 4}, {"checkpoint-16"}, marks=pytest.mark.nightly),
        pytest.param(7, {}, {"checkpoint-6"}, marks=pytest.mark.nightly),  # before any evaluation
        pytest.param(23, {"save_steps": 22}, {"checkpoint-22"}, marks=pytest.mark.nightly),
    ],
)
def test_an_interrupted_run_ends_with_the_same_weights(
    stop: int, changes: dict[str, Any], left: set[str], student_folder: Path, tmp_path: Path,
    break_off: Callable[..., None],
) -> None:  # fmt: skip
    settings = replace(SETTINGS, num_train_epochs=3, per_device_train_batch_size=8, **changes)
    unbroken = _run(student_folder, None, _texts(), settings, output=tmp_path / "unbroken")
    break_off(stop, lambda: _run(student_folder, None, _texts(), settings, output=tmp_path / "run"))
    found = {folder.name for folder in (tmp_path / "run").glob("*checkpoint*")}
    assert found >= left
    assert len(found) <= 2  # the newest, and the best
    resumed = _run(student_folder, None, _texts(), settings, output=tmp_path / "run")
    assert resumed.steps == 24
    assert not list((tmp_path / "run").glob("*checkpoint*"))
    torch.testing.assert_close(resumed.model.state_dict(), unbroken.model.state_dict(), rtol=0, atol=0)
    assert resumed.metrics == unbroken.metrics


def test_training_stops_when_nothing_improves(
    student_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, learning_rate=1e-9, num_train_epochs=9, early_stopping_patience=2)
    with monkeypatch.context() as patched:
        patched.setattr("longform_text.training.run_folder.RunFolder.finish", None)
        with pytest.raises(TypeError):
            _run(student_folder, None, _texts(), settings, output=tmp_path / "run")
    result = _run(student_folder, None, _texts(), settings, output=tmp_path / "run")
    assert result.steps == 3 * 8
    assert result.metrics["best_step"] == 8


def test_the_loss_does_not_depend_on_how_a_step_is_divided(student_folder: Path) -> None:
    losses = []
    for tokens in (64, 4096):
        torch.manual_seed(0)
        settings = replace(SETTINGS, tokens_per_forward=tokens, max_steps=3, num_train_epochs=1)
        model = AutoModel.from_pretrained(student_folder, **STILL)
        records = _run(model, AutoTokenizer.from_pretrained(student_folder), _texts(), settings).records
        losses.append([row["loss"] for row in records if "loss" in row])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_what_does_not_fit(student_folder: Path) -> None:
    examples = _texts()
    with pytest.raises(DataError, match="the validation part: the label 'other'"):
        _run(student_folder, None, examples, validation=Examples(["x"], ["other"]))
    with pytest.raises(ConfigurationError, match="either both have second texts"):
        _run(student_folder, None, examples, validation=Examples(["x"], ["good"], ["y"]))
    with pytest.raises(DataError, match="none of 0 texts has a label"):
        _run(student_folder, None, Examples([], []))
    with pytest.raises(ConfigurationError, match="max_length is 65, but the model takes 64 tokens"):
        _run(student_folder, None, examples, replace(SETTINGS, max_length=65))
    with pytest.raises(ConfigurationError, match='metric_for_best_model="spearman" does not go with single-label'):
        _run(student_folder, None, examples, replace(SETTINGS, metric_for_best_model="spearman"))


def test_many_classes_with_odd_names_are_trained_to_the_end(student_folder: Path, tmp_path: Path) -> None:
    names = [f"class {i}" for i in range(40)] + ["\ud800", "$a$", "中文"]
    examples = Examples([f"text {i}" for i in range(3 * len(names))], names * 3)
    result = _run(
        student_folder, None, examples, replace(SETTINGS, max_steps=1), validation=examples, output=tmp_path / "run"
    )
    assert len(result.labels) == 43
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "run").config.id2label[42] in names
