"""The four trainings, tiny, as functions of what is given, some changes of their settings, and options."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from accelerate.state import AcceleratorState
from transformers import BertModel

import longform
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.training.labels import Examples
from longform_text.training.pretraining.run import pretrain
from longform_text.training.pretraining.settings import PretrainingSettings

RATE, DECAY = 1e-3, 0.03
COMMON: dict[str, Any] = {
    "learning_rate": RATE, "weight_decay": DECAY, "bf16": False, "lr_scheduler_type": "linear", "warmup_steps": 0,
}  # fmt: skip
LINEAR = {"projection": "linear", "projection_sharing": "layerwise", "projected_length": 8}
WINDOWED = {"projection": "mean", "attention_window": 4}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

Training = Callable[..., Any]


class Given(NamedTuple):
    """``folder``: of a Longform with linear projections, by mean pooling a sentence-transformers model."""

    texts: list[str]
    teacher: BertModel
    tokenizer: Any
    folder: Path


def distilling(optimizer: str) -> Training:
    def run(given: Given, changes: dict[str, Any], **options: Any) -> Any:
        student = longform.convert(
            given.teacher, tokenizer=given.tokenizer, max_length=32, projection="linear", sharing="layerwise",
            projected_length=8,
        )  # fmt: skip
        chosen = {"length": 32, "min_length": 12, "tokens_per_step": 100, "heldout_documents": 4, "dropout": 0.2}
        settings = longform.DistillationSettings(**COMMON | chosen | changes, optimizer=optimizer)
        return longform.distill(student, given.teacher, given.texts, settings, progress=False, **options)

    return run


def pretraining(objective: str, **shape: Any) -> Training:
    def run(given: Given, changes: dict[str, Any], **options: Any) -> Any:
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
        settings = PretrainingSettings(
            **COMMON | {"tokens_per_step": 64, "validation_tokens": 100} | changes, objective=objective
        )
        config = {**sizes, "max_position_embeddings": 32, "projected_length": 8, **shape}
        tokenizer = TokenizerSettings("wordpiece", 60)
        return pretrain(given.texts, settings, config=config, tokenizer=tokenizer, progress=False, **options)

    return run


def finetuning(given: Given, changes: dict[str, Any], **options: Any) -> Any:
    settings = longform.FinetuningSettings(**COMMON | {"validation_fraction": 0.25} | changes)
    examples = Examples(given.texts, ["good", "bad"] * (len(given.texts) // 2))
    return longform.finetune(given.folder, examples, settings, progress=False, **options)


def aligning(given: Given, changes: dict[str, Any], **options: Any) -> Any:
    chosen = {"documents_per_step": 4, "heldout_documents": 4, "keep_texts": 4, "dropout": 0.1}
    settings = longform.AlignmentSettings(**COMMON | chosen | changes)
    pairs = [" ".join(text.split()[:3]) for text in given.texts], given.texts
    return longform.align(given.folder, pairs, settings, progress=False, **options)


TRAININGS = {
    "pretrain": pretraining("masked"), "pretrain causally": pretraining("causal", **WINDOWED),
    "distill": distilling("adamw"), "finetune": finetuning, "align": aligning,
}  # fmt: skip


def weights_of(result: Any) -> dict[str, Any]:
    """Of the model of a training's result, whole where processes share it."""
    found = (getattr(result, "student", None) or result.model).state_dict()
    return {name: x.full_tensor() if hasattr(x, "full_tensor") else x for name, x in found.items()}


def as_of_torchrun() -> None:
    """What torchrun and a new interpreter would have: environment variables, and no state of earlier trainings."""
    AcceleratorState._reset_state(reset_partial_state=True)
    rank, count = dist.get_rank(), dist.get_world_size()
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {name: str(value) for name, value in names.items()}
