"""Vectors of questions without torch, which takes several times as long to be imported as a question to be answered.

Within the window's reach a Longform made of BERT has full attention: a few lines of numpy.

Axes: n tokens, F hidden size, H heads, D embedding size (here F).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

from longform.conversion.shipped import named_folder, shipped

ERF = np.frompyfunc(math.erf, 1, 1)


class QuestionReader:
    """An encoder that comes with Longform, for questions up to its window; ``folder`` is its place in the cache, and
    names its content. ``limit``: tokens that the model takes; ``features``: D.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.limit, self.reach = config["max_position_embeddings"], config["attention_window"]
        self.features = config["hidden_size"]
        self._layers, self._heads = config["num_hidden_layers"], config["num_attention_heads"]
        self._epsilon = config["layer_norm_eps"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @classmethod
    def of(cls, source: str | Path) -> "QuestionReader | None":
        """The reader of an encoder; None for one that does not come with Longform, or has not been made yet."""
        folder = named_folder(source) if source in shipped() else None
        return cls(folder) if folder is not None and folder.is_dir() else None

    def vector(self, question: str) -> np.ndarray | None:
        """Vector float32 (D,) of length 1, that of ``Encoder.encode_query``; None for a question beyond the window."""
        ids = np.array(self._tokenizer.encode(question).ids)
        if len(ids) > self.reach:
            return None
        with safe_open(self.folder / "model.safetensors", "np") as weights:
            states = self._embedded(ids, weights)
            for number in range(self._layers):
                names = (name for name in weights.keys() if name.startswith(f"encoder.layers.{number}."))  # noqa: SIM118
                states = self._layer(states, {name.split(".", 3)[3]: weights.get_tensor(name) for name in names})
        _, places, counts = np.unique(ids, return_inverse=True, return_counts=True)
        vector = states.T @ (1 / np.sqrt(counts[places]))  # SublinearTF: a token that is there c times weighs sqrt(c)
        return (vector / np.linalg.norm(vector)).astype(np.float32)  # 64 bits would widen all that it meets

    def _embedded(self, ids: np.ndarray, weights: safe_open) -> np.ndarray:
        """States (n, F) before the first layer."""
        words = weights.get_slice("embeddings.word_embeddings.weight")
        found = np.concatenate([words[number : number + 1] for number in ids.tolist()])
        found += weights.get_slice("embeddings.position_embeddings.weight")[: len(ids)]
        found += weights.get_slice("embeddings.token_type_embeddings.weight")[:1]
        norm = (weights.get_tensor(f"embeddings.LayerNorm.{name}") for name in ("weight", "bias"))
        return self._normed(found, *norm)

    def _layer(self, states: np.ndarray, own: Mapping[str, np.ndarray]) -> np.ndarray:
        """A layer of BERT: attention, feed-forward, and a norm after each."""

        def linear(x: np.ndarray, name: str) -> np.ndarray:
            return x @ own[f"{name}.weight"].T + own[f"{name}.bias"]

        def added(x: np.ndarray, change: np.ndarray, norm: str) -> np.ndarray:
            return self._normed(x + change, own[f"{norm}.weight"], own[f"{norm}.bias"])

        parts = (linear(states, f"attention.{name}") for name in ("query", "key", "value"))
        queries, keys, values = (x.reshape(len(x), self._heads, -1).swapaxes(0, 1) for x in parts)
        scores = queries @ keys.swapaxes(1, 2) / math.sqrt(queries.shape[-1])
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        heads = (shares @ values).swapaxes(0, 1).reshape(states.shape)
        states = added(states, linear(heads, "attention.output"), "attention_norm")
        inner = linear(states, "feed_forward.intermediate")
        inner *= 0.5 * (1 + ERF(inner / math.sqrt(2)).astype(np.float32))
        return added(states, linear(inner, "feed_forward.output"), "feed_forward_norm")

    def _normed(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        spread = np.sqrt(x.var(axis=-1, keepdims=True) + self._epsilon)
        return (x - x.mean(axis=-1, keepdims=True)) / spread * weight + bias
