"""A task that is learned from labelled texts: the data of both parts, the head, and how it is measured.

Axes: N texts, n tokens, L labels.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, NamedTuple

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

PROBLEMS = {SINGLE: classifiers.SINGLE_LABEL, MULTI: classifiers.MULTI_LABEL, REGRESSION: classifiers.REGRESSION}
TOKENIZED_AT_ONCE = 256


class Part(NamedTuple):
    """Texts as a model takes them: ``rows`` have input_ids and labels; ``truncated``: how many of them were cut."""

    rows: list[dict[str, Any]]
    truncated: int


class TextTask:
    """Texts with one label, several, or a number. ``scheme``: the kind of labels and their names.

    ``measurements``: of each kind those that may say which step is best; the first does where nothing is chosen.
    """

    head = CLASSIFIER
    progress = False
    measurements: ClassVar[Mapping[str, Sequence[str]]] = {
        SINGLE: ("macro_f1", "accuracy", "loss"),
        MULTI: ("macro_f1", "micro_f1", "loss"),
        REGRESSION: ("spearman", "loss"),
    }

    def __init__(self, train: Any, validation: Any, settings: FinetuningSettings, fields: dict[str, Any]) -> None:
        self.rate = settings.argument("learning_rate")
        self.train = self.read(train, **fields)
        held = None if validation is None else self.read(validation, **fields)
        self.scheme = self.learn(settings.task)
        if held is None:
            how: Any = {"fraction": settings.validation_fraction, "seed": settings.seed}
            self.train, held = split(self.train, self.scheme, **how)
        if (self.train.pairs is None) != (held.pairs is None):
            raise ConfigurationError("training and validation part: either both have second texts, or none")
        self.validation, self.labels, self.name = held, self.scheme.names, self.scheme.task
        self.metrics = self.measurements[self.name]
        self.config = {"problem_type": PROBLEMS[self.name]} if self.name in PROBLEMS else {}

    read = staticmethod(examples_of)

    def learn(self, task: str) -> Any:
        """The scheme of the training part's labels."""
        return learn_scheme(self.train.labels, task)

    def remembered(self, max_length: int, fields: dict[str, Any]) -> classifiers.FineTuning:
        """Record of the fine-tuning for the model's config."""
        pairs = self.train.pairs is not None
        return classifiers.FineTuning(self.name, self.scheme.label_type, max_length, pairs, **fields)

    def parts(self, tokenizer: Any, max_length: int, *, progress: bool = False) -> tuple[Part, Part]:
        """Training and validation part; ``progress``: a bar shows how far each is."""
        self.progress = progress
        both = ((self.train, "the training part"), (self.validation, "the validation part"))
        one, other = (self.part(examples, tokenizer, max_length, where=where) for examples, where in both)
        return one, other

    def part(self, examples: Examples, tokenizer: Any, max_length: int, *, where: str) -> Part:
        """Texts with their targets; ``where``: what errors call them."""
        targets, texts = self.scheme.encode(examples.labels, where=where), examples.inputs()
        found: list[Any] = []
        for some in self.pieces(texts, where):
            found += tokenize(some, tokenizer, max_length=max_length)
        rows = [_row(text, tokenizer) | {"labels": target} for text, target in zip(found, targets, strict=True)]
        return Part(rows, sum(text.truncated > 0 for text in found))

    def pieces(self, texts: Sequence[Any], where: str) -> Iterator[Any]:
        """Some texts at a time, under a bar."""
        starts = range(0, len(texts), TOKENIZED_AT_ONCE)
        for start in tqdm(starts, f"tokenising {where}", leave=False, disable=hidden(self.progress)):
            yield texts[start : start + TOKENIZED_AT_ONCE]

    def described(self, rows: Sequence[dict[str, Any]]) -> str:
        """In words; ``rows``: of the training part."""
        return self.scheme.described([row["labels"] for row in rows])

    def collator(self, tokenizer: Any) -> Any:
        """Collator that makes a batch of rows."""
        return DataCollatorWithPadding(tokenizer)

    def scores(self, logits: Any, targets: Any) -> dict[str, Any]:
        """Every measurement, with ``confusion`` and ``labels`` for single labels; ``logits`` (N, L)."""
        self.check(logits)
        if self.name == SINGLE:
            return asdict(classification.classification_scores(logits, targets, self.labels))
        if self.name == MULTI:
            return asdict(classification.multi_label_scores(logits, targets))
        values = asdict(classification.regression_scores(logits, targets))
        return {name: value if math.isfinite(value) else 0.0 for name, value in values.items()}  # no correlation

    def check(self, logits: Any) -> None:
        """Raise InputError for logits that are not finite."""
        if not np.isfinite(logits).all():
            raise InputError(
                f"what the model says of the validation part is NaN or infinite: lower learning_rate ({self.rate})"
            )


def _row(text: Any, tokenizer: Any) -> dict[str, Any]:
    row = {"input_ids": text.input_ids}
    if text.token_type_ids is not None and "token_type_ids" in tokenizer.model_input_names:
        row["token_type_ids"] = text.token_type_ids
    return row | {"attention_mask": [1] * len(text.input_ids)}
