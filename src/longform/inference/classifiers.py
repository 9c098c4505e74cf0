"""Sequence classifiers run over texts. Axes: B texts of a batch, N texts, L labels."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from longform.data.batching import Batch
from longform.data.text import Document, Text, usable_texts
from longform.errors import DataError
from longform.inference.fine_tuning import FineTuning, of_config
from longform.inference.loading import checked_limit, load_pretrained, token_limit
from longform.inference.strategies import Outcome, TextModel

SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"


@dataclass(frozen=True)
class TextClassifier(TextModel):
    """A sequence classifier and its tokenizer: the numbers of a text are logits (L).

    One that was fine-tuned on pairs of texts raises DataError for a single one.
    """

    verb = "classify"

    @property
    def features(self) -> int:
        """L."""
        return self.model.config.num_labels

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, L)."""
        return self.model(**batch.model_inputs(self.model.device)).logits

    def outcomes(self, texts: Text | Iterable[Text], **options: Any) -> Iterator[Outcome]:
        """Logits in order, streamed; ``options`` are those of ``run_texts``."""
        return super().outcomes(self._pairs(usable_texts(texts)) if self.fine_tuning.pairs else texts, **options)

    def _pairs(self, texts: Iterable[Text]) -> Iterator[Text]:
        for number, text in enumerate(texts):
            if isinstance(text, str) or (isinstance(text, Document) and text.pair is None):
                named = text.id if isinstance(text, Document) else f"text {number}"
                raise DataError(
                    f"{named} is a single text, and the model was fine-tuned on pairs: name the field with the second "
                    f"text (pair_field, --pair-field; in training it was {self.fine_tuning.pair_field!r})"
                )
            yield text

    @property
    def fine_tuning(self) -> FineTuning:
        """What it was fine-tuned with."""
        return of_config(self.model.config)

    @property
    def problem_type(self) -> str:
        """The config's, else regression for one label and single-label for several."""
        config = self.model.config
        return config.problem_type or (REGRESSION if config.num_labels == 1 else SINGLE_LABEL)

    @property
    def labels(self) -> list[str]:
        """Names in the order of the logits; of a name that several have, with the place, as "name (0)"."""
        names = [self.model.config.id2label[place] for place in range(self.features)]
        times = Counter(names)
        return [name if times[name] == 1 else f"{name} ({place})" for place, name in enumerate(names)]

    @property
    def label2id(self) -> dict[str, int]:
        """Places of the labels among the logits."""
        return {label: place for place, label in enumerate(self.labels)}

    def logits(self, texts: Text | Iterable[Text], *, progress: bool = False, **options: Any) -> np.ndarray:
        """Logits float32 (N, L) of ``texts``, (L,) of one string; ``options`` are those of ``run_texts``."""
        return self.values(texts, progress=progress, **options)


def load_classifier(
    source: str | Path,
    *,
    max_length: int | None = None,
    dtype: str = "float32",
    device: str = "auto",
    compile: bool = False,
) -> TextClassifier:
    """A TextClassifier of a folder or hub name. Raises CheckpointError when its head was never trained.

    ``max_length``: tokens of a text, None for what the model was fine-tuned with, else all that fit; a warning says
    where it is another than in fine-tuning.
    """
    auto = AutoModelForSequenceClassification
    model, tokenizer = load_pretrained(auto, source, dtype=dtype, device=device, compile=compile)
    limit, known = token_limit(model, tokenizer), of_config(model.config)
    if max_length is not None:
        known.warn(source, max_length=max_length)
    else:
        max_length = limit if known.max_length is None else min(known.max_length, limit)
    return TextClassifier(model, tokenizer, checked_limit(limit, max_length, name=str(source)))
