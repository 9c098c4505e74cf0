"""A module of sentence-transformers: in the mean, a token that a text has c times weighs sqrt(c) in all, instead of c.

What a long text says again and again ("um", "the Company") else drowns what it says once. In a folder's list of modules
it stands before the pooling, under the name of its class here: sentence-transformers loads it after ``import longform``
(``longform.auto_tables``), and without that, where longform is installed, with ``trust_remote_code=True``.
"""

from typing import Any

from sentence_transformers.base.modules.module import Module
from torch import Tensor

from longform.functional.pooling import sublinear_weights


class SublinearTF(Module):
    """Hidden states times the weights of their tokens, whose mean over a text is 1."""

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """``features``: ``token_embeddings`` (B, n, hidden), ``input_ids`` and ``attention_mask`` (B, n)."""
        states: Tensor = features["token_embeddings"]
        weights = sublinear_weights(features["input_ids"], features["attention_mask"].bool())
        return {**features, "token_embeddings": states * weights[..., None].to(states.dtype)}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Nothing but that it is there."""
        self.save_config(output_path)
