"""Served model: from a folder, and its results for a batch of token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from longform.conversion.local import local_source
from longform.pretrained.tokenizers import SpecialTokens, special_tokens
from longform.pretrained.weights import read_config
from longform_text.data.batching import TokenizedText, collate
from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.serving.errors import Refusal
from longform_text.serving.settings import ServingSettings

CLASSIFIER = "ForSequenceClassification"  # how the name of a classifier's class ends
Runner = TypeVar("Runner", Encoder, Classifier)


class States(NamedTuple):
    """One row of an encoder's output without padding: ``last`` (1, n, hidden), what went in, all layers' states."""

    last: Tensor
    inputs: dict[str, Tensor]
    layers: tuple[Tensor, ...] | None


@dataclass(frozen=True)
class Engine:
    """A loaded model. ``name``: as answers have it, without the machine's folders."""

    runner: Encoder | Classifier
    name: str

    @classmethod
    def load(cls, folder: str, settings: ServingSettings) -> "Engine":
        """The model of a folder or hub name, a classifier where its config says so.

        Raises CheckpointError, ConfigurationError.
        """
        given, folder = folder, local_source(folder)
        config = read_config(folder)
        kind = Classifier if (config.architectures or [""])[0].endswith(CLASSIFIER) else Encoder
        how: Any = {name: getattr(settings, name) for name in ("max_length", "dtype", "device", "graphs")}
        name = Path(given).resolve().name if Path(given).is_dir() else given
        return cls(kind.from_pretrained(folder, **how), settings.name or name)

    @property
    def kind(self) -> str:
        """ "embedding", "classifier", or "reranker": a classifier with one score."""
        if isinstance(self.runner, Encoder):
            return "embedding"
        return "reranker" if self.runner.features == 1 else "classifier"

    def encoder(self) -> Encoder:
        """The model, for a route that needs vectors; raises Refusal where it is a classifier."""
        if not isinstance(self.runner, Encoder):
            raise Refusal("wrong_model", f"{self.name} is a {self.kind}: it has no vectors, /predict has its scores")
        return self.runner

    def classifier(self) -> Classifier:
        """The model, for a route that needs labels; raises Refusal where it is an encoder."""
        if not isinstance(self.runner, Classifier):
            raise Refusal("wrong_model", f"{self.name} has vectors (/v1/embeddings), and no labels")
        return self.runner

    def reranker(self) -> Classifier:
        """The model, for a route that needs a score of pairs; raises Refusal for another."""
        if self.kind != "reranker":
            raise Refusal(
                "wrong_model", f"{self.name} is a model of kind {self.kind}, no reranker (a classifier with one score)"
            )
        return self.classifier()

    @cached_property
    def special(self) -> SpecialTokens:
        """The tokens around a text."""
        return special_tokens(self.runner.tokenizer)

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the model in memory."""
        packed = sum(getattr(part, "weight_bytes", 0) for part in self.runner.model.modules())
        tensors = [*self.runner.model.parameters(), *self.runner.model.buffers()]
        return packed + sum(tensor.nbytes for tensor in tensors)

    def run(self, texts: Sequence[TokenizedText]) -> list[Any]:
        """Results of the model for each row: States of an encoder, logits (L) of a classifier."""
        batch = collate(range(len(texts)), texts, self.runner.tokenizer)
        inputs = batch.model_inputs(self.runner.model.device)
        found = self.runner.model(**inputs)
        if isinstance(self.runner, Classifier):
            return list(found.logits.float().cpu())
        last, layers = found.last_hidden_state, found.get("hidden_states")
        rows = []
        for row, length in enumerate(batch.tokens):
            at = (slice(row, row + 1), slice(0, max(1, length)))
            own = {name: value[at] for name, value in inputs.items()}
            rows.append(States(last[at], own, None if layers is None else tuple(each[at] for each in layers)))
        return rows
