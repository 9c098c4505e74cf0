"""The encoder of an index: loaded when it is needed, for questions mostly not."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longform_text.inference.question import QuestionReader

if TYPE_CHECKING:  # they import torch, for seconds, and an index that is up to date answers without it
    from longform_text.inference.chunks import ChunkPlan
    from longform_text.inference.encoders import Encoder


class Model:
    """An encoder and what an index asks of it.

    ``source``: an Encoder, or what ``Encoder.from_pretrained`` takes, on ``device``. ``chunk_tokens``: of a passage, at
    most half of what the model takes.
    """

    def __init__(self, source: "Encoder | str | Path", device: str, chunk_tokens: int) -> None:
        self._source, self._device = source, device
        self._questions = QuestionReader.of(source) if isinstance(source, str | Path) else None
        limit = self._questions.limit if self._questions else self.encoder.limit
        self.chunk_tokens = min(chunk_tokens, max(1, limit // 2))

    @cached_property
    def encoder(self) -> "Encoder":
        """The encoder, loaded when it is first needed."""
        from longform_text.inference.encoders import Encoder

        if isinstance(self._source, Encoder):
            return self._source
        return Encoder.from_pretrained(self._source, device=self._device)

    @cached_property
    def documents(self) -> "Encoder":
        """The encoder for documents."""
        return self.encoder.for_documents()

    def identity(self, there: dict[str, Any]) -> dict[str, Any]:
        """Facts that all passages of an index have in common; ``there``: those of the index that is opened."""
        numbers = {"chunk_tokens": self.chunk_tokens}
        if self._questions and there.get("model") == self._questions.folder.name:  # of the cache: the same weights
            return there | numbers | {"pooling": None, "dimensions": self._questions.features, "prompt": ""}
        from longform.pretrained.checkpoint_files import model_identity

        about, own = model_identity(self.encoder.model.name_or_path), self.documents
        facts = {"pooling": own.pooling, "dimensions": own.features, "prompt": own.prompt}
        return {"model": Path(about["model"] or "").name, "weights_key": about["weights_key"], **facts, **numbers}

    def question(self, question: str) -> np.ndarray:
        """The vector (D,) of a question."""
        vector = self._questions.vector(question) if self._questions else None
        return self._unit(self.encoder.encode_query([question]))[0] if vector is None else vector

    def plan(self, text: str) -> "ChunkPlan":
        """How the passages of a text are read."""
        from longform_text.inference.chunks import chunk_plan, tokens_around

        how: Any = {"chunk_tokens": self.chunk_tokens, "boundaries": "sentences"}
        return chunk_plan(self.documents, tokens_around(self.documents), text, **how)

    def passages(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors (m, D) of passages as they are searched."""
        return self._unit(self.documents.finished(vectors))

    def _unit(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors of length 1, but where the model's folder says that lengths count."""
        if self.encoder.folder.similarity == "dot":
            return vectors
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(min=1e-12)
