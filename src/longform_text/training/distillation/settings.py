"""Settings of a distillation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from longform.errors import ConfigurationError
from longform_text.settings import check_between, check_positive, one_of
from longform_text.training.settings import TrainingSettings

SHORT, LONG = 512, 4096  # tokens: bounds of the length of crops that is taken where none is chosen


@dataclass(frozen=True, init=False)
class DistillationSettings(TrainingSettings):
    """How a student learns from its teacher; beside the settings of every training.

    The recipe: 500 steps, a rate that rises for a tenth
    of the steps and falls as a cosine (1e-4 for a student with an attention window, which is nearly right from the
    beginning, else 5e-4), measured before, after and four times between.

    Args:
        length: longest crop of a document, in tokens, special tokens included; default: half of what the student takes,
            from 512 (or all that it takes) to 4096. Crops of ``length``, ``length`` / 2,
            ``length`` / 4 ... down to ``min_length`` are mixed in every step, about as many of each.
        min_length: shortest length that a longer document is cut to, in tokens (shorter documents stay whole). Texts
            within twice the student's attention window are exact already: they hold the student to what it knows.
        tokens_per_step: tokens of one optimiser step, of each process.
        optimizer: "muon" (the layers' matrices by Muon; vectors, tables, E and F by AdamW; a step takes longer, and
            several times fewer are needed) or "adamw".
        train_word_embeddings: whether word vectors move too; they begin as the teacher's.
        dropout: probability (0 to 1) while distilling.
        teacher_length: tokens of a teacher window, special tokens included; default: all that the teacher takes.
        heldout_documents: documents that are kept for measuring agreement with the teacher, not trained on; at most a
            fifth of all.

    Raises ConfigurationError for a value that cannot be.
    """

    recipe: ClassVar[Mapping[str, Any]] = {
        "max_steps": 500,
        "lr_scheduler_type": "cosine",
        "per_device_train_batch_size": 1,  # a step's crops are one item
        "eval_strategy": "steps",
        "eval_steps": 0.2,
        "eval_on_start": True,
        "include_num_input_tokens_seen": "non_padding",
    }

    tokens_per_forward: int = 16_384
    length: int | None = None
    min_length: int = 128
    tokens_per_step: int = 4096
    optimizer: str = one_of(("muon", "adamw"), "muon")
    train_word_embeddings: bool = False
    dropout: float = 0.0
    teacher_length: int | None = None
    heldout_documents: int = 64

    def check(self) -> None:
        """See TrainingSettings."""
        super().check()
        check_positive(self, "length", "min_length", "tokens_per_step", "teacher_length", "heldout_documents")
        check_between(self, 0, 1, "dropout")
        if self.length is not None and self.min_length > self.length:
            raise ConfigurationError(f"min_length={self.min_length} is more than length={self.length}")


def fitted(settings: DistillationSettings, limit: int) -> DistillationSettings:
    """The settings with a length for a student that takes ``limit`` tokens, where none is chosen."""
    if settings.length is not None:
        return settings
    length = min(limit, max(SHORT, min(limit // 2, LONG)))
    return replace(settings, length=length, min_length=min(settings.min_length, length))
