"""Every training: E and F learn at their own rate, and a run that was broken off ends nearly as an unbroken one."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tiny_models import make_sentence_transformer, save_longform
from transformers import BertModel

import longform
from longform.errors import ConfigurationError
from longform.layers.sequence_projection import DenseProjection
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.training.labels import Examples
from longform_text.training.pretraining.run import pretrain
from longform_text.training.pretraining.settings import PretrainingSettings
from longform_text.training.trainer import Trainer

RATE, DECAY = 1e-3, 0.03
COMMON: dict[str, Any] = {
    "learning_rate": RATE, "weight_decay": DECAY, "bf16": False, "lr_scheduler_type": "linear", "warmup_steps": 0,
}  # fmt: skip
LINEAR = {"projection": "linear", "projection_sharing": "layerwise", "projected_length": 8}

Rows = list[dict[str, tuple[float, float, float | None]]]
Training = Callable[..., Any]


class Given(NamedTuple):
    """``folder``: of a Longform with linear projections, by mean pooling a sentence-transformers model."""

    texts: list[str]
    teacher: BertModel
    tokenizer: Any
    folder: Path


@pytest.fixture
def given(texts: list[str], teacher: BertModel, tiny_tokenizer: Any, tmp_path: Path) -> Given:
    (tmp_path / "model").mkdir()
    folder = save_longform(tmp_path / "model", tiny_tokenizer, **LINEAR)
    make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)
    return Given(texts, teacher, tiny_tokenizer, folder)


def _distil(optimizer: str) -> Training:
    def run(given: Given, changes: dict[str, Any], **options: Any) -> Any:
        student = longform.convert(
            given.teacher, tokenizer=given.tokenizer, max_length=32, projection="linear", sharing="layerwise",
            projected_length=8,
        )  # fmt: skip
        chosen = {"length": 32, "min_length": 12, "tokens_per_step": 100, "heldout_documents": 4, "dropout": 0.2}
        settings = longform.DistillationSettings(**COMMON | chosen | changes, optimizer=optimizer)
        return longform.distill(student, given.teacher, given.texts, settings, progress=False, **options)

    return run


def _pretrain(objective: str, **shape: Any) -> Training:
    def run(given: Given, changes: dict[str, Any], **options: Any) -> Any:
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
        settings = PretrainingSettings(
            **COMMON | {"tokens_per_step": 64, "validation_tokens": 100} | changes, objective=objective
        )
        config = {**sizes, "max_position_embeddings": 32, "projected_length": 8, **shape}
        tokenizer = TokenizerSettings("wordpiece", 60)
        return pretrain(given.texts, settings, config=config, tokenizer=tokenizer, progress=False, **options)

    return run


def _finetune(given: Given, changes: dict[str, Any], **options: Any) -> Any:
    settings = longform.FinetuningSettings(**COMMON | {"validation_fraction": 0.25} | changes)
    examples = Examples(given.texts, ["good", "bad"] * (len(given.texts) // 2))
    return longform.finetune(given.folder, examples, settings, progress=False, **options)


def _align(given: Given, changes: dict[str, Any], **options: Any) -> Any:
    chosen = {"documents_per_step": 4, "heldout_documents": 4, "keep_texts": 4, "dropout": 0.1}
    settings = longform.AlignmentSettings(**COMMON | chosen | changes)
    pairs = [" ".join(text.split()[:3]) for text in given.texts], given.texts
    return longform.align(given.folder, pairs, settings, progress=False, **options)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Rows:
    """At each step, learning rate and weight decay of each trained parameter, beside what its module multiplies."""
    rows: Rows = []
    original = Trainer.training_step

    def watched(self: Any, *arguments: Any) -> Any:
        found = {
            p: (group["lr"], group["weight_decay"]) for group in self.optimizer.param_groups for p in group["params"]
        }
        owners = [module for module in self.model.modules() if isinstance(module, DenseProjection)]
        own = {p: module.learning_rate_multiplier for module in owners for p in module.parameters()}
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        assert set(found) == set(trained.values())
        rows.append({name: (*found[p], own.get(p)) for name, p in trained.items()})
        return original(self, *arguments)

    monkeypatch.setattr(Trainer, "training_step", watched)
    return rows


@pytest.mark.parametrize(
    "train", [_pretrain("masked", **LINEAR), _distil("muon"), _distil("adamw"), _finetune, _align],
    ids=["pretrain", "distill with muon", "distill with adamw", "finetune", "align"],
)  # fmt: skip
def test_projections_learn_at_their_own_rate(train: Training, steps: Rows, given: Given) -> None:
    """The rates that longform.parameter_groups gives, at every step of the schedule."""
    train(given, {"max_steps": 3, "eval_strategy": "no"})
    assert len(steps) == 3
    for step, row in enumerate(steps):
        assert {multiplier for _, _, multiplier in row.values()} > {None}
        for name, (rate, decay, multiplier) in row.items():
            assert rate == pytest.approx(RATE * (multiplier or 1.0) * (1 - step / 3)), name
            assert decay in ((0.0, DECAY) if name.endswith("weight") and multiplier is None else (0.0,)), name
        assert DECAY in {decay for _, decay, _ in row.values()}


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "train",
    [_pretrain("masked"), _pretrain("causal", projection="mean", attention_window=4), _distil("adamw"), _finetune,
     _align],
    ids=["pretrain", "pretrain causally", "distill", "finetune", "align"],
)  # fmt: skip
def test_a_run_that_was_broken_off(
    train: Training, killed: bool, given: Given, break_off: Callable[..., None], tmp_path: Path
) -> None:
    """It goes on to the weights of an unbroken one, by the same settings only; finished, it is not repeated."""
    changes, output = {"max_steps": 6, "save_steps": 2}, tmp_path / "run"
    unbroken = train(given, changes, output=tmp_path / "unbroken")
    break_off(5, lambda: train(given, changes, output=output), killed=killed)
    assert (output / "checkpoint-4").exists()
    with pytest.raises(ConfigurationError, match=r"settings.learning_rate: 0.001 there, 0.0001 now"):
        train(given, {**changes, "learning_rate": 1e-4}, output=output)
    resumed = train(given, changes, output=output)
    _check(resumed, unbroken)
    assert not list(output.glob("*checkpoint*"))
    again = train(given, changes, output=output)
    assert json.loads(json.dumps(resumed.records)) == again.records
    _check(again, unbroken)
    break_off(0, lambda: train(given, changes, output=output, restart=True))


@pytest.mark.nightly
def test_twenty_kills_at_random_steps(given: Given, break_off: Callable[..., None], tmp_path: Path) -> None:
    changes, output = {"max_steps": 40, "save_steps": 1}, tmp_path / "run"
    unbroken = _finetune(given, changes, output=tmp_path / "unbroken")
    for step in sorted(random.Random(0).sample(range(1, 40), 20)):
        break_off(step, lambda: _finetune(given, changes, output=output), killed=True)
    _check(_finetune(given, changes, output=output), unbroken)


def _check(result: Any, expected: Any) -> None:
    """Weights are nearly equal: transformers draws the masks and the dropout of the first step anew."""
    one, other = (getattr(each, "student", None) or each.model for each in (result, expected))
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=6 * RATE)
    assert result.steps == expected.steps
    one, other = (each.records[-2] for each in (result, expected))
    assert [one[name] for name in one if name.endswith(("loss", "cosine", "ndcg"))] == pytest.approx(
        [other[name] for name in other if name.endswith(("loss", "cosine", "ndcg"))], rel=0.05
    )
