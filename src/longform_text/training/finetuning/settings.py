"""Settings of a fine-tuning."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from longform.choices import POOLINGS
from longform_text.settings import check_between, check_positive, one_of
from longform_text.training.settings import TrainingSettings

TASKS = ("auto", "single-label", "multi-label", "regression", "token-classification")


@dataclass(frozen=True, init=False)
class FinetuningSettings(TrainingSettings):
    """How an encoder learns a task from labelled texts; beside the settings of every training.

    The recipe: AdamW at 5e-5, 3 passes, 16 texts a step, measured and saved after each pass; the best step is kept.

    Args:
        task: "auto" (from the labels: text or whole numbers single-label, lists multi-label, decimals regression, lists
            of words with as many labels token-classification; it asks where all decimals are whole, as 1.0 is), or one
            of these.
        max_length: tokens that a text is cut to, special tokens included; default: all that the model takes.
        head_learning_rate: of the new classification head; default: ``learning_rate``.
        validation_fraction: part of the texts (0 to 1) held out where no validation part is given; stratified.
        classifier_pooling: what a Longform's new head sees: "cls" (the first token), "mean", "lead" (a mean in which
            early tokens weigh more), "cls_mean" or "cls_lead" (the first token beside that mean); default: as its
            configuration says, "cls" for a converted encoder. A head that the model has keeps its own.
        early_stopping_patience: evaluations without improvement after which training stops; default: never.

    Of the fields of TrainingArguments ``metric_for_best_model`` is macro_f1 for labels, spearman for regression, f1 for
    labels of words where nothing else is said. Raises ConfigurationError for a value that cannot be.
    """

    recipe: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-5,
        "num_train_epochs": 3.0,
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 32,
        "eval_strategy": "epoch",
        "load_best_model_at_end": True,
    }

    task: str = one_of(TASKS, "auto")
    max_length: int | None = None
    head_learning_rate: float | None = None
    validation_fraction: float = 0.1
    classifier_pooling: str | None = one_of(POOLINGS, None)
    early_stopping_patience: int | None = None

    def check(self) -> None:
        """See TrainingSettings."""
        super().check()
        check_positive(self, "max_length", "head_learning_rate", "early_stopping_patience")
        check_between(self, 0, 0.9, "validation_fraction")
