"""The n x n maps of a whole model on a text, for looking at them.

Axes: B batch, n tokens, h heads.
"""

from typing import Any

import torch
from torch import Tensor, nn

from longform.functional.masks import TextFirst, checked_mask, moved, text_first
from longform.layers.attention import LinformerAttention
from longform.layers.effective_attention import implied_map
from longform.layers.local_attention import LocalAttention
from longform.layers.self_attention import Shared
from longform.models.text_reader import TextReader, reader_of


@torch.no_grad()
def effective_maps(model: nn.Module, **inputs: Tensor) -> tuple[Tensor, ...]:
    """One map (B, h, n, n) a layer: how much each token (row) draws on each token (column), through all slots.

    ``model``: with or without a head; ``inputs``: what it takes, input_ids or inputs_embeds (B, n, ...) with
    attention_mask (B, n). Dropout plays no part. Raises InputError for projections "max" and "convolution", which
    have no such map, and for inputs that the model refuses.
    """
    base = reader_of(model)
    assert base is not None
    given = inputs.get("attention_mask")
    mask = None if given is None else checked_mask(given, batch=given.shape[0], length=given.shape[1])
    order = text_first(mask)
    if mask is not None and order is not None:
        mask = moved(mask, order.there)
        inputs = {name: moved(x, order.there) for name, x in inputs.items()}
    out, maps = _without_dropout(base, inputs), []
    layers: Any = base.encoder.layers
    marks = inputs.get("global_attention_mask")
    shared = Shared(base.encoder.shared_projection, global_attention_mask=None if marks is None else marks.bool())
    for layer, weights, hidden in zip(layers, out.attentions, out.hidden_states[:-1], strict=True):
        attention = layer.attention
        assert isinstance(attention, LinformerAttention | LocalAttention)
        source, _ = attention.prepare(layer.attention_norm(hidden) if layer.pre_norm else hidden, mask)
        source = attention.convolve(source, mask)
        implied = implied_map(attention, weights, source, mask, shared)
        maps.append(implied if order is None else _in_places(implied, order))
    return tuple(maps)


def _without_dropout(base: TextReader, inputs: dict[str, Tensor]) -> Any:
    training = [part for part in base.modules() if part.training]
    base.eval()
    try:
        return base(**inputs, output_attentions=True, output_hidden_states=True, return_dict=True)
    finally:
        for part in training:
            part.training = True


def _in_places(implied: Tensor, order: TextFirst) -> Tensor:
    """A map (B, h, n, n) with queries and tokens where the caller has them."""
    for axis in (2, 3):
        implied = moved(implied.transpose(1, axis), order.back).transpose(1, axis)
    return implied
