"""A model in 8-bit integers, for inference on CPUs."""

from typing import TypeVar

import torch
from torch import nn

from longform.errors import ConfigurationError
from longform.layers.attention import LinformerAttention
from longform.layers.int8_linear import Int8Linear
from longform.layers.packed_linear import PackedLinear
from longform.models.inference import replace_linears
from longform.models.modeling_linformer import LinformerPreTrainedModel

Model = TypeVar("Model", bound=LinformerPreTrainedModel)


def quantize(model: Model) -> Model:
    """Change the encoder's linear layers to int8, weights a scale an output, inputs a scale a token; returns it.

    Embeddings, normalisation, attention, heads and the values' layers stay in float32: values lose most by rounding.
    Where keys are formed from the shortened text (no window) their layers stay, too; they have few rows. What it costs
    in quality and time is in docs/costs.md. The model computes without gradients and is not saved.

    Raises ConfigurationError for a model that is not a Linformer, not in float32, not on a CPU, or packed.
    """
    if not isinstance(model, LinformerPreTrainedModel):
        raise ConfigurationError(f"int8 is for Longform's own models, not {type(model).__name__}: convert it first")
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise ConfigurationError(
            f"int8 starts from float32 on a CPU; the model is {model.dtype} on {model.device.type}"
        )
    if any(isinstance(part, PackedLinear) for part in model.modules()):
        raise ConfigurationError("the model's weights are packed (pack_weights): quantise a model as it was loaded")
    replace_linears(model.base_model.get_submodule("encoder"), Int8Linear, keep=_kept)
    return model.eval()


def _kept(parent: nn.Module, name: str) -> bool:
    if not isinstance(parent, LinformerAttention):
        return False
    return name == "value" or (name == "key" and parent.window is None)
