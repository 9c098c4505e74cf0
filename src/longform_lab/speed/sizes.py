"""Sizes of the compared models: width, depth, and each architecture's own attention options."""

from dataclasses import dataclass

from longform.choices import POOLINGS, PROJECTION_INITS
from longform.errors import ConfigurationError
from longform.layers.options import check_choice


@dataclass(frozen=True)
class Sizes:
    """One width, depth and vocabulary for all architectures.

    ``normalization``: "pre" or "post" for full, Longform, Linformer. Reformer and Performer are "pre", the rest "post".
    ``initializer_range``: standard deviation of initial weights, for every architecture that has this option (all but
    Performer's layers, whose package uses torch's own); 0: 1 / sqrt(hidden_size). BERT's 0.02 is for widths of 768
    and more.
    """

    length: int  # n, tokens of the longest text; longer ones are cut
    vocabulary: int  # number of token ids, padding included
    labels: int  # number of classes
    hidden_size: int = 64  # D, width of the layers
    layers: int = 2
    heads: int = 2
    intermediate_size: int = 128  # of the feed-forward part
    dropout: float = 0.1  # probability after embeddings, attention and feed-forward, and in the head
    attention_dropout: float = 0.0  # probability on attention weights (of the models that have it)
    projected_length: int = 256  # k of Linformer, slots of Longform
    projection_init: str = "block_mean"  # initial E of Linformer: means of k blocks, or "normal", N(0, 1/k)
    pooling: str = "mean"  # of the last hidden states, for every architecture: one of longform.choices.POOLINGS
    window: int = 64  # w: Longform sees w to 2w tokens on each side, Longformer w; Reformer's chunks are of w tokens
    block: int = 16  # tokens of a BigBird block
    landmarks: int = 64  # number of Nyströmformer's landmarks
    random_features: int = 64  # number of Performer's
    hashes: int = 2  # rounds of Reformer's hashing
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
