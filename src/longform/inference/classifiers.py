"""Sequence classifiers run over texts. Axes: B texts of a batch, N texts, L labels."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from longform.data.batching import Batch
from longform.data.text import Text
from longform.inference.loading import load_limited
from longform.inference.strategies import TextModel

SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"


@dataclass(frozen=True)
class TextClassifier(TextModel):
    """A sequence classifier and its tokenizer: the numbers of a text are logits (L)."""

    verb = "classify"

    @property
    def features(self) -> int:
        """L."""
        return self.model.config.num_labels

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, L)."""
        return self.model(**batch.model_inputs(self.model.device)).logits

    @property
    def problem_type(self) -> str:
        """The config's, else regression for one label and single-label for several."""
        config = self.model.config
        return config.problem_type or (REGRESSION if config.num_labels == 1 else SINGLE_LABEL)

    @property
    def labels(self) -> list[str]:
        """Names in the order of the logits."""
        return [self.model.config.id2label[place] for place in range(self.features)]

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
    """A TextClassifier of a folder or hub name. Raises CheckpointError when its head was never trained."""
    options: Any = {"max_length": max_length, "dtype": dtype, "device": device, "compile": compile}
    return TextClassifier(*load_limited(AutoModelForSequenceClassification, source, **options))
