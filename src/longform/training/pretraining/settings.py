"""Settings of pre-training, with units, checked when made."""

from dataclasses import dataclass

from longform.choices import PACKINGS
from longform.runs.settings import check_between, check_least, check_positive
from longform.training.engine.settings import TrainingSettings, one_of

MASKED, CAUSAL = "masked", "causal"


@dataclass(frozen=True)
class PretrainingSettings(TrainingSettings):
    """How a language model learns from scratch, beside the settings of every training; defaults are RoBERTa's.

    Args:
        objective: "masked": the model fills in hidden tokens; "causal": it says each token from those before it, for
            which its attention needs a window and slots of runs (``projection`` not "linear" or "random").
        length: tokens of a block, special tokens included; default: all that the model takes.
        packing: "full": blocks are full, and a separator stands between the documents in them; "documents": no block
            holds two documents, and what is left of each is padded.
        max_documents: documents of the corpus that are used; default: all.
        tokens_per_step: tokens of one optimiser step, over all processes.
        max_steps: optimiser steps. Of several budgets the smallest holds; without any, one pass over the corpus.
        max_tokens: tokens of training text, over all processes.
        mask_fraction: part of the content tokens (0 to 1) that a masked model is asked for; of these 80 % become the
            mask token, 10 % another token, and the rest stays as it is.
        validation_tokens: tokens held out for measuring, whole documents, at most a tenth of the corpus.
        evaluations: how often the validation loss is measured while training at most, at even distances (before and
            after come on top).

    Raises ConfigurationError for a value that cannot be.
    """

    objective: str = one_of((MASKED, CAUSAL), MASKED)
    length: int | None = None
    packing: str = one_of(PACKINGS, "full")
    max_documents: int | None = None
    tokens_per_step: int = 131_072
    max_tokens: int | None = None
    learning_rate: float = 5e-4
    warmup: float = 0.08
    mask_fraction: float = 0.15
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
            "mask_fraction",
            "validation_tokens",
        )
        check_between(self, 0, 1, "mask_fraction")
        check_least(self, evaluations=0)
