"""Settings of pre-training, with units, checked when made."""

from dataclasses import dataclass

from longform.choices import DTYPES, PACKINGS
from longform.errors import ConfigurationError
from longform.runs.settings import Settings, check_between, check_least, check_positive
from longform.training.settings import check_training, one_of

SCHEDULES = ("linear", "polynomial", "cosine", "constant")


@dataclass(frozen=True)
class PretrainingSettings(Settings):
    """How a masked-language model learns from scratch; the defaults are RoBERTa's recipe.

    Args:
        length: tokens of a block, special tokens included; default: all that the model takes.
        packing: "full": blocks are full, and a separator stands between the documents in them; "documents": no block
            holds two documents, and what is left of each is padded.
        max_documents: documents of the corpus that are used; default: all.
        tokens_per_step: tokens of one optimiser step, over all processes.
        tokens_per_forward: tokens that pass through the model at once; a step of more accumulates gradients.
        max_steps: optimiser steps. Of several budgets the smallest holds; without any, one pass over the corpus.
        max_minutes: wall-clock minutes; the first steps are timed, and the number of steps that fit is then fixed.
        max_tokens: tokens of training text, over all processes.
        learning_rate: highest learning rate of Adam.
        warmup: part of the steps (0 to 1) in which the learning rate rises from 0.
        schedule: how the learning rate falls to 0 after that: "linear", "polynomial", "cosine", or "constant".
        power: of the polynomial schedule; 1 is linear.
        beta1: Adam's decay of the mean gradient (0 to 1).
        beta2: Adam's decay of the mean squared gradient (0 to 1).
        epsilon: Adam's addend to the root of the mean squared gradient.
        weight_decay: decoupled, on matrices only.
        max_grad_norm: gradients are scaled down to this norm.
        mask_fraction: part of the content tokens (0 to 1) that the model is asked for.
        mask_share: part of these (0 to 1) that become the mask token.
        random_share: part of these (0 to 1) that become another token; the rest stays as it is.
        validation_tokens: tokens held out for measuring, whole documents, at most a tenth of the corpus.
        evaluations: how often the validation loss is measured while training at most, at even distances (before and
            after come on top).
        save_every_steps: steps between two checkpoints; default: a tenth of the run.
        gradient_checkpointing: recompute activations in the backward pass: less memory, a third more time.
        seed: of the initial weights, the order of blocks, masks and dropout; the validation set does not change.
        dtype: of the matrix products: "auto" (bfloat16 where CPU or GPU has it natively), "bfloat16" or "float32".
        device: where it is trained: "auto" (the first GPU of CUDA, else the CPU), "cpu", "cuda", "mps", "xpu"; an
            interrupted run may go on elsewhere.
        fsdp: under torchrun: share weights, gradients and what the optimizer keeps out among the processes (FSDP2); an
            interrupted run may go on in another number of them.
        fsdp_dtype: in which a layer's weights are gathered; gradients are summed in float32.
        sequence_parallel: processes of torchrun that compute each text together, a part of it each; a divisor of all.

    Raises ConfigurationError for a value that cannot be.
    """

    length: int | None = None
    packing: str = one_of(PACKINGS, "full")
    max_documents: int | None = None
    tokens_per_step: int = 131_072
    tokens_per_forward: int = 16_384
    max_steps: int | None = None
    max_minutes: float | None = None
    max_tokens: int | None = None
    learning_rate: float = 5e-4
    warmup: float = 0.08
    schedule: str = one_of(SCHEDULES, "linear")
    power: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    mask_fraction: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    validation_tokens: int = 65_536
    evaluations: int = 9
    save_every_steps: int | None = None
    gradient_checkpointing: bool = False
    seed: int = 0
    dtype: str = one_of(DTYPES, "auto")
    device: str = "auto"
    fsdp: bool = False
    fsdp_dtype: str = one_of(("float32", "bfloat16"), "float32")
    sequence_parallel: int = 1

    def __post_init__(self) -> None:
        check_training(self)
        check_positive(
            self,
            "length",
            "max_documents",
            "tokens_per_step",
            "max_tokens",
            "power",
            "epsilon",
            "mask_fraction",
            "validation_tokens",
        )
        check_between(self, 0, 1, "beta1", "beta2", "mask_fraction", "mask_share", "random_share")
        check_least(self, evaluations=0, sequence_parallel=1)
        if self.mask_share + self.random_share > 1:
            raise ConfigurationError(
                f"mask_share={self.mask_share} and random_share={self.random_share} together are more than 1"
            )
