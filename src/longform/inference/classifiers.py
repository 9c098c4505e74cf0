"""A sequence classifier run over texts. Axes: B texts of a batch, N texts, L labels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from longform.data.batching import Batch
from longform.inference.loading import checked_limit, load_pretrained, token_limit
from longform.inference.strategies import Collected, Outcome, Text, collect, run_texts

SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"


@dataclass(frozen=True)
class TextClassifier:
    """A sequence classifier and its tokenizer. ``limit``: tokens that it takes at most."""

    model: Any
    tokenizer: Any
    limit: int

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, L)."""
        inputs = {name: tensor.to(self.model.device) for name, tensor in batch.model_inputs().items()}
        return self.model(**inputs).logits

    @property
    def problem_type(self) -> str:
        """The config's, else regression for one label and single-label for several."""
        config = self.model.config
        return config.problem_type or (REGRESSION if config.num_labels == 1 else SINGLE_LABEL)

    @property
    def labels(self) -> list[str]:
        """Names in the order of the logits."""
        config = self.model.config
        return [config.id2label[place] for place in range(config.num_labels)]

    @property
    def label2id(self) -> dict[str, int]:
        """Places of the labels among the logits."""
        return {label: place for place, label in enumerate(self.labels)}

    def outcomes(self, texts: Iterable[Text], **options: Any) -> Iterator[Outcome]:
        """Logits in order, streamed; ``options`` are those of ``run_texts`` (chunks: logits are averaged)."""
        options.setdefault("limit", self.limit)
        return run_texts(self.forward, texts, self.tokenizer, **options)

    def logits(self, texts: Sequence[Text], *, progress: bool = False, **options: Any) -> np.ndarray:
        """Logits float32 (N, L) of ``texts``; ``options`` are those of ``run_texts``."""
        return self.collect(texts, progress=progress, **options).values

    def collect(self, texts: Sequence[Text], *, progress: bool = False, **options: Any) -> Collected:
        """Logits (N, L), and how many tokens were seen and texts cut."""
        outcomes = self.outcomes(texts, **options)
        features = self.model.config.num_labels
        return collect(outcomes, total=len(texts), features=features, name="classify", progress=progress)


def load_classifier(
    source: str | Path,
    *,
    max_length: int | None = None,
    dtype: str = "float32",
    device: str = "auto",
    compile: bool = False,
) -> TextClassifier:
    """A TextClassifier of a folder or hub name. Raises CheckpointError when its head was never trained."""
    model, tokenizer = load_pretrained(
        AutoModelForSequenceClassification, source, dtype=dtype, device=device, compile=compile
    )
    return TextClassifier(model, tokenizer, checked_limit(token_limit(model, tokenizer), max_length, name=str(source)))
