"""Longform's variants as competitors."""

from functools import partial
from typing import Any

from longform.conversion.defaults import SINKS
from longform.layers.sequence_projection import DenseProjection
from longform.models.configuration_linformer import LinformerConfig
from longform.models.modeling_linformer import LinformerModel
from longform_lab.speed.competitor import Competitor, FromEmbeddings, common_settings
from longform_lab.speed.shapes import Shape


def linformer(shape: Shape, **options: Any) -> FromEmbeddings:
    """A random LinformerModel of this shape, without dropout and pooler; ``options`` of its attention."""
    settings: Any = {**common_settings(shape), "use_pooler": False, "short_convolution": 0, **options}
    return FromEmbeddings(LinformerModel(LinformerConfig(**settings)))


def pure(shape: Shape, *, projection: str, sharing: str = "headwise") -> FromEmbeddings:
    """The paper's attention: k slots, nothing exact.

    A random E is scaled so that its keys are as long as a token's: with N(0, 1/k) they grow with sqrt(n / k), every
    softmax picks one slot, and after some layers no dtype agrees with another.
    """
    made = linformer(shape, projection=projection, projection_sharing=sharing, projected_length=shape.slots)
    for module in made.modules():
        if isinstance(module, DenseProjection):
            for matrix in module.tensors():
                matrix.data.mul_((shape.slots / shape.length) ** 0.5)
    return made


def windowed(shape: Shape, **options: Any) -> FromEmbeddings:
    """Mean slots beside an exact window, and a sink, as ``longform convert`` sizes them; then ``options``."""
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


def _pure(name: str, label: str, **options: str) -> Competitor:
    return Competitor(name=name, label=label, family="ours", build=partial(pure, **options), longest=None)


COMPETITORS = (
    Competitor(
        name="ours-window",
        label="Longform, window",
        family="ours",
        build=windowed,
        longest=None,
        details=window_details,
    ),
    _pure("ours-linear", "Longform, linear, layerwise", projection="linear", sharing="layerwise"),
    _pure("ours-linear-key-value", "Longform, linear, key-value", projection="linear", sharing="key_value"),
    _pure("ours-linear-headwise", "Longform, linear, headwise", projection="linear", sharing="headwise"),
    _pure("ours-linear-none", "Longform, linear, no sharing", projection="linear", sharing="none"),
    _pure("ours-mean", "Longform, mean", projection="mean"),
    _pure("ours-convolution", "Longform, convolution, headwise", projection="convolution"),
)
