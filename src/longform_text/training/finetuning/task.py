"""A task that is learned from labelled texts: the data of both parts, the head, and how it is measured.

Axes: N texts, n tokens, L labels.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm
from transformers import DataCollatorWithPadding

from longform.errors import ConfigurationError, InputError
from longform_text.data.batching import tokenize
from longform_text.data.progress import hidden
from longform_text.evaluation import classification
from longform_text.inference import classifiers
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.labels import MULTI, REGRESSION, SINGLE, Examples, examples_of, learn_scheme, split
from longform_text.training.students import CLASSIFIER

METRICS = {
    SINGLE: ("macro_f1", "accuracy", "loss"),
    MULTI: ("macro_f1", "micro_f1", "loss"),
    REGRESSION: ("spearman", "loss"),
}
PROBLEMS = {SINGLE: classifiers.SINGLE_LABEL, MULTI: classifiers.MULTI_LABEL, REGRESSION: classifiers.REGRESSION}
TOKENIZED_AT_ONCE = 256


class Part(NamedTuple):
    """Texts as a model takes them: ``rows`` have input_ids and labels; ``truncated``: how many of them were cut."""

    rows: list[dict[str, Any]]
    truncated: int


class TextTask:
    """Texts with one label, several, or a number."""

    head = CLASSIFIER

    def __init__(self, train: Any, validation: Any, settings: FinetuningSettings, fields: dict[str, Any]) -> None:
        self.rate = settings.argument("learning_rate")
        labelled = examples_of(train, **fields)
        held = None if validation is None else examples_of(validation, **fields)
        self.scheme = learn_scheme(labelled.labels, settings.task)
        if held is None:
            labelled, held = split(labelled, self.scheme, fraction=settings.validation_fraction, seed=settings.seed)
        if (labelled.pairs is None) != (held.pairs is None):
            raise ConfigurationError("training and validation part: either both have second texts, or none")
        self.train, self.validation = labelled, held

    @property
    def name(self) -> str:
        """The task."""
        return self.scheme.task

    @property
    def metrics(self) -> Sequence[str]:
        """Measurements that may say which step is best; the first does where nothing is chosen."""
        return METRICS[self.scheme.task]

    @property
    def labels(self) -> list[str]:
        """Names in the order of the logits."""
        return self.scheme.names

    @property
    def config(self) -> dict[str, Any]:
        """Fields of the model's config."""
        return {"problem_type": PROBLEMS[self.scheme.task]}

    def remembered(self, max_length: int, fields: dict[str, Any]) -> classifiers.FineTuning:
        """Record of the fine-tuning for the model's config."""
        pairs = self.train.pairs is not None
        return classifiers.FineTuning(self.scheme.task, self.scheme.label_type, max_length, pairs, **fields)

    def parts(self, tokenizer: Any, max_length: int, *, progress: bool) -> tuple[Part, Part]:
        """Training and validation part."""
        both = ((self.train, "the training part"), (self.validation, "the validation part"))
        one, other = (self._part(examples, where, tokenizer, max_length, progress) for examples, where in both)
        return one, other

    def _part(self, examples: Examples, where: str, tokenizer: Any, max_length: int, progress: bool) -> Part:
        targets, texts = self.scheme.encode(examples.labels, where=where), examples.inputs()
        rows: list[dict[str, Any]] = []
        truncated = 0
        shown: Any = {"desc": f"tokenising {where}", "unit": "text", "leave": False, "disable": hidden(progress)}
        with tqdm(total=len(texts), **shown) as bar:
            for start in range(0, len(texts), TOKENIZED_AT_ONCE):
                some = tokenize(texts[start : start + TOKENIZED_AT_ONCE], tokenizer, max_length=max_length)
                truncated += sum(text.truncated > 0 for text in some)
                rows += [_row(text, tokenizer) for text in some]
                bar.update(len(some))
        return Part([row | {"labels": target} for row, target in zip(rows, targets, strict=True)], truncated)

    def described(self, rows: Sequence[dict[str, Any]]) -> str:
        """In words; ``rows``: of the training part."""
        return self.scheme.described([row["labels"] for row in rows])

    def collator(self, tokenizer: Any) -> Any:
        """Collator that makes a batch of rows."""
        return DataCollatorWithPadding(tokenizer)

    def scores(self, logits: Any, targets: Any) -> dict[str, Any]:
        """Every measurement, with ``confusion`` and ``labels`` for single labels; ``logits`` (N, L)."""
        if not np.isfinite(logits).all():
            raise InputError(
                f"what the model says of the validation part is NaN or infinite: lower learning_rate ({self.rate})"
            )
        if self.scheme.task == SINGLE:
            return asdict(classification.classification_scores(logits, targets, self.scheme.names))
        if self.scheme.task == MULTI:
            return asdict(classification.multi_label_scores(logits, targets))
        values = asdict(classification.regression_scores(logits, targets))
        return {name: value if math.isfinite(value) else 0.0 for name, value in values.items()}  # no correlation


def _row(text: Any, tokenizer: Any) -> dict[str, Any]:
    row = {"input_ids": text.input_ids}
    if text.token_type_ids is not None and "token_type_ids" in tokenizer.model_input_names:
        row["token_type_ids"] = text.token_type_ids
    return row | {"attention_mask": [1] * len(text.input_ids)}
