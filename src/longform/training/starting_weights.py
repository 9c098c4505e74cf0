"""Weights that a model begins its pre-training with: those of another one, for other attention or longer texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from longform.errors import ConfigurationError
from longform.models.task_heads import LinformerForMaskedLM
from longform.runs.subject import model_identity
from longform.training.pretraining_model import described
from longform.training.students import load_encoder

# What one kind of attention has and another has not.
OF_THE_KIND = ("shared_projection", ".attention.groups.", ".memory_bias", ".attention.convolution.")


class Start:
    """A pre-trained Longform in a folder. Raises ConfigurationError where there is none with a masked-language head."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        if not self.folder.is_dir():
            raise ConfigurationError(f'start="{folder}" is not a folder; longform pretrain --output makes one')
        model = load_encoder(self.folder)
        if not isinstance(model, LinformerForMaskedLM):
            raise ConfigurationError(
                f'start="{folder}" holds a {type(model).__name__}; pre-training begins with a LinformerForMaskedLM, '
                "as longform pretrain writes it"
            )
        self.model, self.key = model, model_identity(str(self.folder))["weights_key"]

    def described(self) -> dict[str, Any]:
        """Fields of its LinformerConfig."""
        return described(self.model.config)

    def begin(self, model: LinformerForMaskedLM) -> None:
        """Copy into ``model`` what both have.

        Positions go on as in ``resize_sequence_length`` (tiled), and E and F are stretched where both have some of
        one k; a projection or memory that this one lacks stays as it is. ``self`` is used up.

        Raises ConfigurationError, which names them, for weights of another size.
        """
        self.model.resize_sequence_length(model.config.max_position_embeddings)
        _take_up(model, self.model.state_dict(), self.folder)


@torch.no_grad()
def _take_up(model: PreTrainedModel, weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    other = []
    for name, value in model.state_dict().items():
        found = weights.get(name)
        if found is not None and found.shape == value.shape:
            value.copy_(found)
        elif not any(part in name for part in OF_THE_KIND):
            other.append(f"{name} {tuple(value.shape)}, there {'none' if found is None else tuple(found.shape)}")
    if other:
        raise ConfigurationError(
            f'the weights of start="{folder}" do not fit the model, which has {"; ".join(other[:3])}'
            f"{f' and {len(other) - 3} more' if other[3:] else ''}: it takes the same tokenizer, layers, widths and "
            "heads; attention and length may be others"
        )
