"""Trainings of tiny models in forked processes that stand for those of torchrun."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from torch import Tensor

from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.pretraining.run import pretrain
from longform_text.training.pretraining.settings import PretrainingSettings
from longform_text.training.trainer import Trainer

MODEL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 32, "projection": "linear", "projected_length": 4, "projection_sharing": "layerwise",
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
FSDP = {"fsdp": "full_shard", "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": True}}


class Trained(NamedTuple):
    """``losses`` of the steps, what was measured in the end, and the ``weights`` of the model."""

    losses: list[float]
    measured: float
    weights: dict[str, Tensor]

    def difference(self, other: "Trained") -> tuple[float, float, float]:
        """The largest of losses, of the measurement and of weights."""
        losses = max(abs(a - b) for a, b in zip(self.losses, other.losses, strict=True))
        weights = max(float((self.weights[name] - other.weights[name]).abs().max()) for name in other.weights)
        return losses, abs(self.measured - other.measured), weights


def _as_of_torchrun() -> None:
    """What torchrun and a new interpreter would have: environment variables, and no state of earlier trainings."""
    if dist.is_initialized():
        AcceleratorState._reset_state(reset_partial_state=True)
        rank, count = dist.get_rank(), dist.get_world_size()
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        os.environ |= {name: str(value) for name, value in names.items()}


def _trained(model: Any, records: list[dict[str, Any]], measured: float) -> Trained:
    losses = [row["loss"] for row in records if "loss" in row]
    weights = {
        name: (x.full_tensor() if hasattr(x, "full_tensor") else x).clone() for name, x in model.state_dict().items()
    }
    return Trained(losses, measured, weights)


def pretrained(texts: list[str], output: Path, *, stopped_at: int | None = None, **more: Any) -> Trained | None:
    """Twenty steps of a pre-training, or as many of them until it is stopped: then None."""
    _as_of_torchrun()
    chosen: dict[str, Any] = {
        "tokens_per_step": 128, "tokens_per_forward": 64, "max_steps": 20, "learning_rate": 3e-3, "eval_strategy": "no",
        "validation_tokens": 150, "bf16": False, "use_cpu": True, "objective": "causal", "save_steps": 8,
    }  # fmt: skip
    config = MODEL | {"projection": "mean", "projection_sharing": "none", "attention_window": 8}
    step = Trainer.training_step

    def stopping(self: Any, *given: Any) -> Any:
        if self.state.global_step == stopped_at:
            raise KeyboardInterrupt
        return step(self, *given)

    with patch.object(Trainer, "training_step", stopping), suppress(KeyboardInterrupt):
        result = pretrain(
            texts, PretrainingSettings(**chosen | more), config=config, tokenizer=TokenizerSettings("wordpiece", 60),
            output=output, cache=output.with_name("cache"), progress=False,
        )  # fmt: skip
    if stopped_at is not None:
        assert (output / f"checkpoint-{stopped_at // 8 * 8}").exists()
        return None
    return _trained(result.model, result.records, result.validation_loss)


def finetuned(folder: Path, texts: list[str], output: Path, *, batch_size: int, **more: Any) -> Trained:
    """Two passes over labelled texts, the best of which is kept."""
    _as_of_torchrun()
    labels = ["good" if text.split().count("good") > 1 else "bad" for text in texts]
    chosen: dict[str, Any] = {
        "num_train_epochs": 2, "tokens_per_forward": 100, "learning_rate": 1e-2, "bf16": False, "use_cpu": True,
        "warmup_steps": 0, "metric_for_best_model": "loss", "per_device_train_batch_size": batch_size,
        "dataloader_drop_last": True,
    }  # fmt: skip
    torch.manual_seed(0)
    result = finetune(folder, (texts, labels), FinetuningSettings(**chosen | more), output=output, progress=False)
    return _trained(result.model, result.records, result.metrics["loss"])
