"""Longform's own variants as competitors, and Linformer with its products in the other order."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from longform.conversion.defaults import SINKS
from longform.layers.attention import LinformerAttention
from longform.layers.self_attention import Shared
from longform.layers.sequence_projection import DenseProjection
from longform.models.configuration_linformer import LinformerConfig
from longform.models.modeling_linformer import LinformerModel
from longform_lab.speed.competitor import Competitor, FromEmbeddings, common_settings, with_weights_formed
from longform_lab.speed.floor import dense_floor, local_floor, mean_floor, window_floor
from longform_lab.speed.shapes import Shape


def linformer(shape: Shape, **options: Any) -> FromEmbeddings:
    """A random LinformerModel of this shape, without dropout and pooler; ``options`` of its attention."""
    settings: Any = {**common_settings(shape), "use_pooler": False, **options}
    return FromEmbeddings(LinformerModel(LinformerConfig(**settings)))


def pure(shape: Shape, *, projection: str, sharing: str = "headwise") -> FromEmbeddings:
    """The paper's attention: k slots, nothing exact.

    A random E is scaled so that its keys are as long as a token's: with N(0, 1/k) they grow with sqrt(n / k), every
    softmax picks one slot, and after some layers no dtype agrees with another.
    """
    made = linformer(shape, projection=projection, projection_sharing=sharing, projected_length=shape.slots)
    for module in made.modules():
        if isinstance(module, DenseProjection):
            for matrix in module.matrices():
                matrix.data.mul_((shape.slots / shape.length) ** 0.5)
    return made


def windowed(shape: Shape, **options: Any) -> FromEmbeddings:
    """As ``longform convert`` makes it by default: mean slots beside an exact window, and a sink; then ``options``."""
    chosen = window_details(shape)
    return linformer(
        shape,
        projection="mean",
        projected_length=chosen["window_slots"],
        attention_window=chosen["window"],
        sink_tokens=chosen["sinks"],
        **options,
    )


def window_details(shape: Shape) -> dict[str, int]:
    """Window, k and sinks of the windowed model."""
    slots = shape.window_slots
    return {"window": shape.window, "window_slots": slots, "sinks": min(SINKS, slots - 1)}


class WeightsFirstAttention(nn.Module):
    """E (X W) where the layer ``inner`` computes (E X) W: as other implementations do it."""

    def __init__(self, inner: LinformerAttention) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self, hidden: Tensor, mask: Tensor | None, *, shared: Shared, output_attentions: bool = False
    ) -> Tensor:
        """hidden (B, n, D) -> (B, n, D); no mask, no weights."""
        assert mask is None
        assert not output_attentions
        assert isinstance(shared.projection, DenseProjection)
        layer, heads = self.inner, self.inner.num_heads
        matrix = shared.projection.matrices()[0][0, :, : hidden.shape[1]].to(hidden.dtype)
        query = layer.query(hidden).unflatten(2, (heads, -1)).transpose(1, 2)
        key, value = (
            (matrix @ side(hidden)).unflatten(2, (heads, -1)).transpose(1, 2) for side in (layer.key, layer.value)
        )
        return layer.output(scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def weights_first(shape: Shape) -> FromEmbeddings:
    """The layerwise Linformer, with keys and values of all tokens formed first."""
    model = pure(shape, projection="linear", sharing="layerwise")
    for layer in model.model.encoder.layers:
        layer.attention = WeightsFirstAttention(layer.attention)
    return model


def cheapest_order(model: Any, hidden: Tensor) -> Tensor:
    """The output (B, n, D) of the same weights in Longform's own order; changes the model back to it."""
    for layer in model.model.encoder.layers:
        layer.attention = layer.attention.inner
    return with_weights_formed(model, hidden)


def _pure(name: str, label: str, floor: Any, **options: str) -> Competitor:
    return Competitor(
        name=name,
        label=label,
        family="ours",
        build=partial(pure, **options),
        expected=with_weights_formed,
        floor=floor,
        longest=None,
    )


def _dense(name: str, label: str, sharing: str) -> Competitor:
    return _pure(name, label, partial(dense_floor, sharing=sharing), projection="linear", sharing=sharing)


COMPETITORS = (
    Competitor(
        name="ours-window", label="Longform, window", family="ours", build=windowed, expected=with_weights_formed,
        floor=window_floor, longest=None, details=window_details,
    ),
    _dense("ours-linear", "Longform, linear, layerwise", "layerwise"),
    _dense("ours-linear-key-value", "Longform, linear, key-value", "key_value"),
    _dense("ours-linear-headwise", "Longform, linear, headwise", "headwise"),
    _dense("ours-linear-none", "Longform, linear, no sharing", "none"),
    _pure("ours-mean", "Longform, mean", mean_floor, projection="mean"),
    _pure("ours-convolution", "Longform, convolution, headwise", local_floor, projection="convolution"),
    _pure("ours-convolution-key-value", "Longform, convolution, key-value", local_floor, projection="convolution",
          sharing="key_value"),
    _pure("ours-convolution-layerwise", "Longform, convolution, layerwise", local_floor, projection="convolution",
          sharing="layerwise"),
    _pure("ours-convolution-none", "Longform, convolution, no sharing", local_floor, projection="convolution",
          sharing="none"),
    Competitor(
        name="weights-first", label="Linear, layerwise, W first", family="order", build=weights_first,
        expected=cheapest_order, floor=partial(dense_floor, sharing="layerwise"),
    ),
)  # fmt: skip
