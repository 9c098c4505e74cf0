"""The table of architectures that are compared, and one way to build and run them all.

Every one is an encoder of the same width, depth, heads, feed-forward width and vocabulary, with learned positions;
on it sit the same pooling and the same classification head (dense, ReLU, dropout, dense), that of
LinformerForSequenceClassification. No other library's classification class is used.

Axes: B texts, n tokens, D hidden.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from longform.errors import ConfigurationError
from longform.models.configuration_linformer import LinformerConfig
from longform.models.task_heads import ClassificationHead, LinformerForSequenceClassification
from longform_lab.speed import encoders
from longform_lab.speed.sizes import Sizes


class SequenceClassifier(nn.Module):
    """Another package's encoder, as ``make`` builds it, with our pooling and head."""

    def __init__(self, make: Callable[[Sizes], encoders.Encoder], sizes: Sizes) -> None:
        super().__init__()
        self.encoder, width, self.lengths = make(sizes)
        config = LinformerConfig(
            hidden_size=width,
            num_attention_heads=1,
            hidden_dropout_prob=sizes.dropout,
            classifier_pooling=sizes.pooling,
            classifier_activation="relu",
        )
        self.head = ClassificationHead(config, sizes.labels)
        for layer in (self.head.dense, self.head.out_proj):  # as in our own models
            nn.init.normal_(layer.weight, std=sizes.initial_deviation)
            nn.init.zeros_(layer.bias)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Ids and mask long (B, n) -> logits (B, labels)."""
        more = (0, self.lengths(mask.shape[1]) - mask.shape[1])
        inputs, mask = pad(inputs, more), pad(mask, more)
        hidden = self.encoder(input_ids=inputs, attention_mask=mask)
        hidden = hidden if isinstance(hidden, Tensor) else hidden.last_hidden_state
        return self.head(hidden, mask.bool())


class OurClassifier(nn.Module):
    """LinformerForSequenceClassification, which gives its logits alone."""

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__()
        self.model = LinformerForSequenceClassification(config)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Ids and mask long (B, n) -> logits (B, labels)."""
        return self.model(input_ids=inputs, attention_mask=mask).logits


@dataclass(frozen=True)
class Architecture:
    """One row of the table. ``build``: a new model for some sizes; ``source``: where its code is from.

    ``pads``: what it needs n to be, in words. ``family``: "full", "ours" or "others", for the plot's colours.
    ``norm``: layer norms "pre" or "post" attention and feed-forward; "": where Sizes.normalization says.
    ``windowed``: whether Sizes.window decides about it.
    """

    name: str
    title: str
    family: str
    source: str
    pads: str
    build: Callable[[Sizes], nn.Module]
    norm: str = ""
    windowed: bool = False


def _ours(**attention: Any) -> Callable[[Sizes], nn.Module]:
    """A builder of one of our models; values may be functions of the sizes."""

    def build(sizes: Sizes) -> nn.Module:
        chosen = {name: value(sizes) if callable(value) else value for name, value in attention.items()}
        labels: dict[str, Any] = {"num_labels": sizes.labels}  # Hugging Face's own field, which has no annotation
        config = LinformerConfig(
            vocab_size=sizes.vocabulary,
            hidden_size=sizes.hidden_size,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            intermediate_size=sizes.intermediate_size,
            type_vocab_size=0,
            hidden_dropout_prob=sizes.dropout,
            attention_probs_dropout_prob=sizes.attention_dropout,
            max_position_embeddings=sizes.length,
            normalization=sizes.normalization,
            use_pooler=False,
            classifier_pooling=sizes.pooling,
            classifier_activation="relu",
            initializer_range=sizes.initial_deviation,
            **labels,
            **{"short_convolution": 0, **chosen},
        )
        return OurClassifier(config)

    return build


def _slots(sizes: Sizes) -> int:
    return min(sizes.projected_length, sizes.length)


def _window_slots(sizes: Sizes) -> int:
    """As many slots as asked for, or more, so that none covers more tokens than the window."""
    return max(_slots(sizes), ceil(sizes.length / sizes.window))


def _window(sizes: Sizes) -> int:
    """The window, widened to whole slots."""
    slot = ceil(sizes.length / _window_slots(sizes))
    return slot * ceil(sizes.window / slot)


TRANSFORMERS = "transformers"
ARCHITECTURES = {
    row.name: row
    for row in (
        Architecture(
            "full", "full attention", "full", "longform, projection off", "nothing",
            _ours(projection="mean", projected_length=1, attention_window=lambda sizes: sizes.length),
        ),
        Architecture(
            "longform", "Longform (window)", "ours", "longform", "nothing",
            _ours(projection="mean", projected_length=_window_slots, attention_window=_window), windowed=True,
        ),
        Architecture(
            "selection", "Longform (selection)", "ours", "longform", "nothing",
            _ours(
                projection="weighted_mean", projected_length=_window_slots, attention_window=_window,
                selected_slots=8, short_convolution=5,
            ),
            windowed=True,
        ),
        Architecture(
            "weighted", "Longform (weighted means)", "ours", "longform", "nothing",
            _ours(projection="weighted_mean", projected_length=_slots, short_convolution=5),
        ),
        Architecture(
            "linformer", "Linformer", "ours", "longform", "nothing",
            _ours(
                projection="linear", projected_length=_slots, projection_sharing="layerwise",
                projection_init=lambda sizes: sizes.projection_init,
            ),
        ),
        Architecture(
            "reformer", "Reformer (LSH)", "others", TRANSFORMERS, "a multiple of the chunk",
            partial(SequenceClassifier, encoders.reformer), "pre", windowed=True,
        ),
        Architecture(
            "longformer", "Longformer", "others", TRANSFORMERS, "a multiple of the window",
            partial(SequenceClassifier, encoders.longformer), "post", windowed=True,
        ),
        Architecture(
            "bigbird", "BigBird (sparse)", "others", TRANSFORMERS, "a multiple of the block, 12 blocks or more",
            partial(SequenceClassifier, encoders.bigbird), "post",
        ),
        Architecture(
            "nystromformer", "Nyströmformer", "others", TRANSFORMERS, "the longest length, always",
            partial(SequenceClassifier, encoders.nystromformer), "post",
        ),
        Architecture(
            "performer", "Performer", "others", "performer-pytorch", "nothing (its mask hides values, not keys)",
            partial(SequenceClassifier, encoders.performer), "pre",
        ),
    )
}  # fmt: skip


def build(name: str, sizes: Sizes, *, seed: int) -> nn.Module:
    """A new model, float32. Raises ConfigurationError for a name that is not in the table and for sizes that no
    model can have, MissingDependencyError for a package that is not installed."""
    if name not in ARCHITECTURES:
        raise ConfigurationError(f'there is no architecture "{name}"; there are: {", ".join(ARCHITECTURES)}')
    torch.manual_seed(seed)
    return ARCHITECTURES[name].build(sizes)
