"""Numbers that stop being finite: the run stops, says what is to blame, and gives no such model back."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertModel

from longform.errors import CheckpointError, InputError
from longform_text.training.distillation.run import distill
from longform_text.training.distillation.settings import DistillationSettings
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.labels import Examples
from longform_text.training.trainer import Trainer

EXAMPLES = Examples(["a good text", "a bad text"] * 8, ["good", "bad"] * 8)
VALUES = EXAMPLES._replace(labels=[1.0, 0.5] * 8)
SETTINGS = FinetuningSettings(
    max_steps=4, per_device_train_batch_size=4, validation_fraction=0.25, bf16=False, lr_scheduler_type="constant"
)


def _train(folder: Path, examples: Examples = EXAMPLES, **changes: Any) -> nn.Module:
    return finetune(folder, examples, dataclasses.replace(SETTINGS, **changes), progress=False).model


def _poison(model: nn.Module, value: float) -> nn.Module:
    next(p for name, p in model.named_parameters() if "LayerNorm.weight" in name).data[0] = value
    return model


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_is_not_trained(
    value: float, student_folder: Path, teacher: BertModel, texts: list[str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    _poison(AutoModel.from_pretrained(student_folder), value).save_pretrained(broken)
    for file in student_folder.glob("tokenizer*"):
        (broken / file.name).write_bytes(file.read_bytes())
    settings = DistillationSettings(length=48, min_length=12, max_steps=1, heldout_documents=4, bf16=False)
    with pytest.raises(CheckpointError, match=r"the model to train has weights .*LayerNorm\.weight.*a sound one"):
        _train(broken)
    with pytest.raises(CheckpointError, match="the model to train has weights"):
        distill(broken, teacher, texts, settings, output=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(CheckpointError, match="the teacher has weights that are NaN or infinite"):
        distill(student_folder, _poison(teacher, value), texts, settings, progress=False)


WEIGHTS = r"made weights NaN or infinite \(.*LayerNorm\.weight.*\): "


@pytest.mark.parametrize(
    ("step", "measured", "said"),
    [
        (1, "epoch", f"the loss is nan at step 2, because the update before it {WEIGHTS}"),
        (3, "no", f"the loss is nan at step 4, because the update before it {WEIGHTS}"),
        (3, "epoch", "what the model says of the validation part is NaN or infinite: "),
        (4, "no", f"^the last update {WEIGHTS}"),
    ],
)
def test_weights_that_an_update_broke_are_blamed_on_the_learning_rate(
    step: int, measured: str, said: str, student_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Trainer.create_optimizer

    def breaking(self: Trainer, model: Any = None) -> torch.optim.Optimizer:
        optimizer = make(self, model)
        taken: list[int] = []

        def poison(*_: Any) -> None:
            taken.append(1)
            if len(taken) == step:
                _poison(self.model, float("nan"))

        optimizer.register_step_post_hook(poison)
        return optimizer

    monkeypatch.setattr(Trainer, "create_optimizer", breaking)
    with pytest.raises(InputError, match=said + r"lower learning_rate \(5e-05\)"):
        _train(student_folder, max_steps=4, eval_strategy=measured)


def test_a_rate_far_too_high_gives_no_model(student_folder: Path) -> None:
    with pytest.raises(InputError, match="lower learning_rate"):
        _train(student_folder, learning_rate=1e38, max_steps=1)


def test_labels_too_large_to_learn_are_blamed(student_folder: Path) -> None:
    with pytest.raises(InputError, match=r"the loss is inf at step 1, while every weight is finite.*extreme size"):
        _train(student_folder, VALUES._replace(labels=[1e30, -1e30] * 8), task="regression")
