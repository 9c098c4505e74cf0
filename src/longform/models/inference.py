"""A model made ready for inference: weights laid out for a CPU's products, and what follows a product done with it."""

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from longform.errors import ConfigurationError
from longform.layers.attention import LinformerAttention
from longform.layers.block import FeedForward, InferenceNorm
from longform.layers.encoder import Stack
from longform.layers.linear import InferenceLinear, is_hooked, pack_linear
from longform.layers.sequence_projection import WeightedMeanProjection
from longform.models.text_reader import reader_of

Model = TypeVar("Model", bound=nn.Module)
Keep = Callable[[nn.Module, str], bool]  # (a layer's parent, its name there)


def pack_weights(model: Model) -> Model:
    """Lay the encoder's weights (F, D) out once for the kernel that multiplies them; returns the same model, a Longform
    or a LinformerEncoder.

    On a CPU with AMX that is Longform's own in bfloat16, else oneDNN, which would do it in every product. The shorter
    the text, the more it brings (docs/lab/costs.md). The packed model gives what it gave, computes without gradients or
    autocast, and is not saved, pickled, moved, cast or compiled. Keys' and values' layers stay as they are where heads
    have different projections or scores or share keys, which takes each head's part of the weight. On a GPU weights
    stay as they are; a GELU is computed with the product before it, and a residual with the norm behind it. The
    commands that load a Longform for inference do it by themselves.

    Raises ConfigurationError for a model that is not a Linformer.
    """
    reader = reader_of(model)
    encoder = model if reader is None else reader.encoder
    if not isinstance(encoder, Stack):
        raise ConfigurationError(
            f"weights are packed for Longform's own models, not {type(model).__name__}: convert it first"
        )
    replace_linears(encoder, pack_linear, keep=_kept)
    for part in encoder.modules():
        if type(part) is nn.LayerNorm and part.weight.is_cuda and not is_hooked(part):
            part.__class__ = InferenceNorm  # the same parameters
        if isinstance(part, FeedForward):
            first = part.intermediate
            if type(first) is nn.Linear and first.weight.is_cuda and not is_hooked(first):
                first.__class__ = InferenceLinear  # computes a GELU with the product
    return model.eval()


def _kept(parent: nn.Module, name: str) -> bool:
    if isinstance(parent, WeightedMeanProjection):
        return True  # a few numbers a token
    if not (isinstance(parent, LinformerAttention) and name in ("key", "value")):
        return False
    shared = parent.num_key_value_heads < parent.num_heads
    by_head = any(projection.multiplies_by_head for projection in parent.groups)
    return shared or by_head or parent.projection_sharing == "none" or len(parent.head_groups) > 1


def replace_linears(model: nn.Module, make: Callable[[nn.Linear], nn.Module], *, keep: Keep | None = None) -> None:
    """Put make(layer) in the place of each linear layer of ``model``, weight of shape (F, D), unless ``keep`` says so.

    A layer with hooks stays: somebody sees or changes what passes through it. So does one with an adapter (PEFT), whose
    parts look into each other.
    """
    adapted = {part for layer in model.modules() if hasattr(layer, "base_layer") for part in layer.modules()}
    for parent in [each for each in model.modules() if each not in adapted]:
        for name, child in list(parent.named_children()):
            plain = type(child) is nn.Linear and not is_hooked(child)
            if plain and not (keep is not None and keep(parent, name)):
                setattr(parent, name, make(child))
