"""Sizes of the compared models: width, depth, and each architecture's own attention options."""

from dataclasses import dataclass

from longform.choices import POOLINGS, PROJECTION_INITS
from longform.errors import ConfigurationError
from longform.layers.geometry import check_choice


@dataclass(frozen=True)
class Sizes:
    """One width, depth and vocabulary for all architectures.

    Args:
        length: n, tokens of the longest text; longer ones are cut.
        vocabulary: number of token ids, padding included; 0 where the input is vectors.
        features: F of an input vector; 0 where the input is token ids.
        labels: number of classes.
        hidden_size: D, width of the layers.
        layers: encoder layers.
        heads: attention heads.
        intermediate_size: width of the feed-forward part.
        dropout: probability after embeddings, attention and feed-forward, and in the head.
        attention_dropout: probability on attention weights (of the models that have it).
        projected_length: k of Linformer, slots of Longform.
        projection_init: initial E of Linformer: "block_mean", means of k blocks, or "normal", N(0, 1/k).
        pooling: of the last hidden states, for every architecture: one of ``longform.choices.POOLINGS``.
        window: w: Longform sees w to 2w tokens on each side, Longformer w; Reformer's chunks are of w tokens.
        block: tokens of a BigBird block.
        landmarks: number of Nyströmformer's landmarks.
        random_features: number of Performer's random features.
        hashes: rounds of Reformer's hashing.
        normalization: "pre" or "post", of full attention, Longform and Linformer; Reformer and Performer are always
            "pre", the rest "post".
        initializer_range: standard deviation of initial weights, for every architecture that has this option (all but
            Performer's layers, whose package uses torch's own); 0: 1 / sqrt(hidden_size). BERT's 0.02 is for widths of
            768 and more.
    """

    length: int
    vocabulary: int
    labels: int
    features: int = 0
    hidden_size: int = 64
    layers: int = 2
    heads: int = 2
    intermediate_size: int = 128
    dropout: float = 0.1
    attention_dropout: float = 0.0
    projected_length: int = 256
    projection_init: str = "block_mean"
    pooling: str = "mean"
    window: int = 64
    block: int = 16
    landmarks: int = 64
    random_features: int = 64
    hashes: int = 2
    normalization: str = "pre"
    initializer_range: float = 0.0

    @property
    def initial_deviation(self) -> float:
        """Standard deviation of initial weights."""
        return self.initializer_range or self.hidden_size**-0.5

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("projection_init", self.projection_init, PROJECTION_INITS)
        if self.hidden_size % self.heads:
            raise ConfigurationError(f"hidden_size={self.hidden_size} must be a multiple of heads={self.heads}")
        if bool(self.vocabulary) == bool(self.features):
            raise ConfigurationError(
                f"either ids (vocabulary) or vectors (features), not vocabulary={self.vocabulary} with "
                f"features={self.features}"
            )
