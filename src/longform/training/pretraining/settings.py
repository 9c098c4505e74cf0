"""Settings of pre-training, with units, checked when made."""

from dataclasses import dataclass

from longform.choices import PACKINGS
from longform.errors import ConfigurationError
from longform.runs.settings import check_between, check_least, check_positive
from longform.training.engine.settings import ShareableSettings, one_of


@dataclass(frozen=True)
class PretrainingSettings(ShareableSettings):
    """How a masked-language model learns from scratch, beside the settings of every training; defaults are RoBERTa's.

    Args:
        length: tokens of a block, special tokens included; default: all that the model takes.
        packing: "full": blocks are full, and a separator stands between the documents in them; "documents": no block
            holds two documents, and what is left of each is padded.
        max_documents: documents of the corpus that are used; default: all.
        tokens_per_step: tokens of one optimiser step, over all processes.
        max_steps: optimiser steps. Of several budgets the smallest holds; without any, one pass over the corpus.
        max_tokens: tokens of training text, over all processes.
        beta1: Adam's decay of the mean gradient (0 to 1).
        beta2: Adam's decay of the mean squared gradient (0 to 1).
        epsilon: Adam's addend to the root of the mean squared gradient.
        mask_fraction: part of the content tokens (0 to 1) that the model is asked for.
        mask_share: part of these (0 to 1) that become the mask token.
        random_share: part of these (0 to 1) that become another token; the rest stays as it is.
        validation_tokens: tokens held out for measuring, whole documents, at most a tenth of the corpus.
        evaluations: how often the validation loss is measured while training at most, at even distances (before and
            after come on top).

    Raises ConfigurationError for a value that cannot be.
    """

    length: int | None = None
    packing: str = one_of(PACKINGS, "full")
    max_documents: int | None = None
    tokens_per_step: int = 131_072
    max_tokens: int | None = None
    learning_rate: float = 5e-4
    warmup: float = 0.08
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-6
    mask_fraction: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    validation_tokens: int = 65_536
    evaluations: int = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            self,
            "length",
            "max_documents",
            "tokens_per_step",
            "max_tokens",
            "epsilon",
            "mask_fraction",
            "validation_tokens",
        )
        check_between(self, 0, 1, "beta1", "beta2", "mask_fraction", "mask_share", "random_share")
        check_least(self, evaluations=0)
        if self.mask_share + self.random_share > 1:
            raise ConfigurationError(
                f"mask_share={self.mask_share} and random_share={self.random_share} together are more than 1"
            )
