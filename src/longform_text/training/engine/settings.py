"""Settings of all trainings, and those of distillation and fine-tuning, with units, checked when made."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from longform.choices import DTYPES, POOLINGS, SCHEDULES
from longform.errors import ConfigurationError
from longform_text.settings import (
    Settings,
    check_between,
    check_choices,
    check_device,
    check_least,
    check_positive,
    one_of,
)

if TYPE_CHECKING:
    import torch

BUDGETS = ("max_steps", "max_minutes", "max_tokens")
DEFAULT_TOKENS = 2_000_000
SHORT, LONG = 512, 4096  # tokens: bounds of the length of crops that is taken where none is chosen


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """Settings that every kind of training has; defaults of some kinds are others.

    Args:
        max_steps: optimiser steps. Of several budgets the smallest holds.
        max_minutes: wall-clock minutes: a few steps are timed, and the number that fits is then fixed; a fine-tuning's
            evaluations come on top.
        tokens_per_forward: tokens, padding included, that pass through the model at once; a step of more accumulates
            gradients.
        learning_rate: highest learning rate.
        warmup: part of the steps (0 to 1) in which the learning rate rises from 0.
        schedule: how the learning rate falls after that: "cosine" or "linear" to 0, or "constant".
        weight_decay: decoupled, on matrices only.
        max_grad_norm: gradients are scaled down to this norm.
        gradient_checkpointing: recompute activations in the backward pass: less memory, a third more time.
        save_every_steps: steps between two checkpoints; default: a tenth of the run.
        seed: of all that is drawn: the order of texts, what is held out or hidden, new weights, dropout.
        dtype: of the matrix products: "auto" (bfloat16 where CPU or GPU has it natively), "bfloat16" or "float32".
        device: where it is trained: "auto" (the first GPU of CUDA, else the CPU), "cpu", "cuda", "mps", "xpu"; an
            interrupted run may go on elsewhere.

    Raises ConfigurationError for a value that cannot be.
    """

    max_steps: int | None = None
    max_minutes: float | None = None
    tokens_per_forward: int = 16_384
    learning_rate: float | None = None
    warmup: float = 0.1
    schedule: str = one_of(SCHEDULES, "linear")
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False
    save_every_steps: int | None = None
    seed: int = 0
    dtype: str = one_of(DTYPES, "auto")
    device: str = "auto"

    def __post_init__(self) -> None:
        check_positive(
            self,
            "learning_rate",
            "max_grad_norm",
            "max_steps",
            "max_minutes",
            "tokens_per_forward",
            "save_every_steps",
        )
        check_between(self, 0, 1, "warmup", "weight_decay")
        check_between(self, 0, 2**32 - 1, "seed")
        check_choices(self)
        check_device(self.device)


@dataclass(frozen=True)
class DistillationSettings(TrainingSettings):
    """How a student learns from its teacher; beside the settings of every training.

    Args:
        length: longest crop of a document, in tokens, special tokens included; default: half of what the student takes,
            from 512 (or all that it takes) to 4096. Crops of ``length``, ``length`` / 2,
            ``length`` / 4 ... down to ``min_length`` are mixed in every step, about as many of each.
        min_length: shortest length that a longer document is cut to, in tokens (shorter documents stay whole). Texts
            within twice the student's attention window are exact already: they hold the student to what it knows.
        tokens_per_step: tokens of one optimiser step, of each process.
        max_steps: optimiser steps. Of several budgets the smallest holds; without any, 2,000,000 tokens.
        max_tokens: tokens of training text, over all processes.
        optimizer: "muon" (the layers' matrices by Muon; vectors, tables, E and F by AdamW; a step takes longer, and
            several times fewer are needed) or "adamw".
        learning_rate: highest learning rate; default: 1e-4 for a student with an attention window, which is nearly
            right from the beginning, else 5e-4.
        weight_decay: on matrices only; with "muon" on those that it trains.
        train_word_embeddings: whether word vectors move too; they begin as the teacher's.
        dropout: probability (0 to 1) while distilling.
        teacher_length: tokens of a teacher window, special tokens included; default: all that the teacher takes.
        heldout_documents: documents that are kept for measuring agreement with the teacher, not trained on; at most a
            fifth of all.
        evaluations: how often agreement is measured while training at most, at even distances (before and after come
            on top).

    Raises ConfigurationError for a value that cannot be.
    """

    length: int | None = None
    min_length: int = 128
    tokens_per_step: int = 4096
    max_tokens: int | None = None
    optimizer: str = one_of(("muon", "adamw"), "muon")
    schedule: str = one_of(SCHEDULES, "cosine")
    train_word_embeddings: bool = False
    dropout: float = 0.0
    teacher_length: int | None = None
    heldout_documents: int = 64
    evaluations: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            self,
            "length",
            "min_length",
            "tokens_per_step",
            "max_tokens",
            "teacher_length",
            "heldout_documents",
        )
        check_between(self, 0, 1, "dropout")
        check_least(self, evaluations=0)
        if self.length is not None and self.min_length > self.length:
            raise ConfigurationError(f"min_length={self.min_length} is more than length={self.length}")


def fitted(settings: DistillationSettings, limit: int) -> DistillationSettings:
    """The settings with a length for a student that takes ``limit`` tokens, where none is chosen."""
    if settings.length is not None:
        return settings
    length = min(limit, max(SHORT, min(limit // 2, LONG)))
    return replace(settings, length=length, min_length=min(settings.min_length, length))


@dataclass(frozen=True)
class FinetuningSettings(TrainingSettings):
    """How an encoder learns a task from labelled texts; beside the settings of every training.

    Args:
        task: "auto" (from the labels: text or whole numbers single-label, lists multi-label, decimals regression; it
            asks where all decimals are whole, as 1.0 is), "single-label", "multi-label" or "regression".
        max_length: tokens that a text is cut to, special tokens included; default: all that the model takes.
        epochs: passes over the training part.
        batch_size: texts of one optimiser step, of each process.
        tokens_per_forward: tokens, padding included, that pass through the model at once; a step's texts are grouped
            by length into such parts, and their gradients accumulated.
        head_learning_rate: of the new classification head; default: ``learning_rate``.
        validation_fraction: part of the texts (0 to 1) held out where no validation part is given; stratified.
        evaluations_per_epoch: how often metrics are measured, a checkpoint saved and the best one remembered.
        save_every_steps: steps between two checkpoints that a killed run goes on from, beside those of the
            evaluations; default: a tenth of the run.
        metric: the one that says which checkpoint is best: "accuracy", "macro_f1", "micro_f1", "spearman", "loss";
            default: macro_f1 for labels, spearman for regression.
        classifier_pooling: what a Longform's new head sees: "cls" (the first token), "mean", "lead" (a mean in which
            early tokens weigh more), "cls_mean" or "cls_lead" (the first token beside that mean); default: as its
            configuration says, "cls" for a converted encoder. A head that the model has keeps its own.
        early_stopping: evaluations without improvement after which training stops; default: never.

    Raises ConfigurationError for a value that cannot be.
    """

    task: str = one_of(("auto", "single-label", "multi-label", "regression"), "auto")
    max_length: int | None = None
    epochs: float = 3.0
    batch_size: int = 16
    tokens_per_forward: int = 8192
    learning_rate: float = 5e-5
    head_learning_rate: float | None = None
    validation_fraction: float = 0.1
    evaluations_per_epoch: int = 1
    metric: str | None = one_of(("accuracy", "macro_f1", "micro_f1", "spearman", "loss"), None)
    classifier_pooling: str | None = one_of(POOLINGS, None)
    early_stopping: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            self, "max_length", "epochs", "batch_size", "head_learning_rate", "evaluations_per_epoch", "early_stopping"
        )
        check_between(self, 0, 0.9, "validation_fraction")


def compute_dtype(name: str, device: "torch.device") -> "torch.dtype":
    """The dtype of matrix products that ``dtype`` in the settings means on this device."""
    import torch  # not above: --help reads the settings' fields and is to be quick

    from longform.functional.conditions import native_bfloat16

    if name == "auto":
        return torch.bfloat16 if native_bfloat16(device) else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def autocast(device: "torch.device", dtype: "torch.dtype") -> "torch.autocast":
    """Inside, matrix products are in ``dtype``."""
    import torch

    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)
