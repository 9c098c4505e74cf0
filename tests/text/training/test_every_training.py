"""Every training: rates of E and F, other inputs, measurements that are shown, runs that were broken off."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from shared_trainings import (
    DECAY,
    LINEAR,
    RATE,
    TRAININGS,
    Given,
    Training,
    aligning,
    distilling,
    finetuning,
    pretraining,
    weights_of,
)

from longform.errors import ConfigurationError
from longform.layers.sequence_projection import DenseProjection
from longform_text.training.run import measured
from longform_text.training.trainer import Trainer

Rows = list[dict[str, tuple[float, float, float | None]]]
every_training = pytest.mark.parametrize("train", TRAININGS.values(), ids=TRAININGS)


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
    "train", [pretraining("masked", **LINEAR), distilling("muon"), distilling("adamw"), finetuning, aligning],
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


@every_training
def test_bfloat16_with_activations_computed_again(train: Training, given: Given) -> None:
    result = train(given, {"max_steps": 2, "bf16": True, "activation_checkpointing": True})
    assert result.steps == 2
    assert all(x.dtype == torch.float32 and bool(x.isfinite().all()) for x in weights_of(result).values())
    model = getattr(result, "student", None) or result.model
    assert not any(getattr(layer, "gradient_checkpointing", False) for layer in model.modules())
    assert not model.training


@pytest.mark.parametrize(
    ("name", "metric"), [("pretrain", "loss"), ("distill", "cosine"), ("finetune", "macro_f1"), ("align", "ndcg")]
)
def test_each_measurement_is_shown(
    name: str, metric: str, given: Given, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error alone, and nothing of it where no progress is wanted."""
    result = TRAININGS[name](given, {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2})
    assert metric not in capsys.readouterr().err
    monkeypatch.setattr("longform_text.training.run.Shown.__init__", _shown)
    TRAININGS[name](given, {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2})
    said = capsys.readouterr()
    assert metric not in said.out
    shown = re.findall(rf"training, step (\d+): .*?{metric} ([\d.]+)", said.err)
    assert [(int(step), float(value)) for step, value in shown] == [
        (row["step"], pytest.approx(row[metric], abs=1e-4)) for row in measured(result.records, metric)
    ]


def _shown(self: Any, doing: str, shown: bool) -> None:
    self.doing, self.shown, self.bar = "training", True, None


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.nightly)])
@every_training
def test_a_run_that_was_broken_off(
    train: Training, killed: bool, given: Given, break_off: Callable[..., None], tmp_path: Path
) -> None:
    """It goes on to an unbroken one's weights, by the same settings and texts only; finished, it is not repeated."""
    changes, output = {"max_steps": 6, "save_steps": 2}, tmp_path / "run"
    unbroken = train(given, changes, output=tmp_path / "unbroken")
    break_off(5, lambda: train(given, changes, output=output), killed=killed)
    assert (output / "checkpoint-4").exists()
    with pytest.raises(ConfigurationError, match=r"settings.learning_rate: 0.001 there, 0.0001 now"):
        train(given, {**changes, "learning_rate": 1e-4}, output=output)
    other = given._replace(texts=[*given.texts[:30], "another text", *given.texts[31:]])
    with pytest.raises(ConfigurationError, match=r"(data|texts): \w+ there, \w+ now"):
        train(other, changes, output=output)
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
    unbroken = finetuning(given, changes, output=tmp_path / "unbroken")
    for step in sorted(random.Random(0).sample(range(1, 40), 20)):
        break_off(step, lambda: finetuning(given, changes, output=output), killed=True)
    _check(finetuning(given, changes, output=output), unbroken)


def _check(result: Any, expected: Any) -> None:
    """Weights are nearly equal: transformers draws the masks and the dropout of the first step anew."""
    torch.testing.assert_close(weights_of(result), weights_of(expected), rtol=0, atol=6 * RATE)
    assert result.steps == expected.steps
    one, other = (each.records[-2] for each in (result, expected))
    assert [one[name] for name in one if name.endswith(("loss", "cosine", "ndcg"))] == pytest.approx(
        [other[name] for name in other if name.endswith(("loss", "cosine", "ndcg"))], rel=0.05
    )
