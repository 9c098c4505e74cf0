"""A model whose weights are laid out for the CPU's matrix products, for inference."""

from typing import TypeVar

from torch import nn

from longform.errors import ConfigurationError
from longform.layers.attention import LinformerAttention
from longform.layers.packed_linear import pack_linear
from longform.layers.replacing import replace_linears
from longform.models.modeling_linformer import LinformerPreTrainedModel

Model = TypeVar("Model", bound=LinformerPreTrainedModel)


def pack_weights(model: Model) -> Model:
    """Lay the encoder's weights (F, D) out once for the kernel that multiplies them; returns the same model.

    That is Longform's own in bfloat16 on a CPU with AMX, else oneDNN, which would do it in every product. The shorter
    the text, the more it brings (docs/costs.md). The packed model gives what it gave, computes without gradients or
    autocast, and is not saved, pickled, moved, cast or compiled. Keys' and values' layers stay as they are where heads
    have projections of their own, which want each head's part of the weight. On a GPU, and where neither kernel serves,
    nothing changes. The commands that load a Longform for inference do it by themselves.

    Raises ConfigurationError for a model that is not a Linformer.
    """
    if not isinstance(model, LinformerPreTrainedModel):
        raise ConfigurationError(
            f"weights are packed for Longform's own models, not {type(model).__name__}: convert it first"
        )
    replace_linears(model.base_model.get_submodule("encoder"), pack_linear, keep=_kept)
    return model.eval()


def _kept(parent: nn.Module, name: str) -> bool:
    if not (isinstance(parent, LinformerAttention) and name in ("key", "value")):
        return False
    return parent.sharing == "none" or len(parent.head_groups) > 1
