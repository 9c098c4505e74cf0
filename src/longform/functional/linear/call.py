"""One call of a linear layer, and of a feed-forward part; what is true of the weights that they are given.

Axes: D inputs, F outputs, I features inside a feed-forward part.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longform.functional.conditions import TILE_MULTIPLE, Call, once


@dataclass(eq=False)
class LinearCall(Call):
    """``x`` (..., D) times ``weight`` (F, D) transposed, plus ``bias`` (F); see ``linear``."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    gelu: bool = False
    residual: Tensor | None = None

    def __post_init__(self) -> None:
        self.options = self.bias is None, self.gelu

    @once
    def tensors(self) -> tuple[Tensor, ...]:  # ty: ignore[incompatible-mutable-override]  nobody writes it
        """Tensors that kernels read, shapes as above."""
        return tuple(x for x in (self.x, self.weight, self.bias, self.residual) if x is not None)

    @property
    def layers(self) -> tuple[Tensor | None, ...]:
        """The weight (F, D) and the bias (F) or None."""
        return self.weight, self.bias


@dataclass(eq=False)
class FeedForwardCall(Call):
    """GELU(x Wᵀ + b) W2ᵀ + b2: ``x`` (..., D), W (I, D), b (I), W2 (F, I), b2 (F)."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    second: Tensor
    second_bias: Tensor | None

    @once
    def tensors(self) -> tuple[Tensor, ...]:  # ty: ignore[incompatible-mutable-override]  nobody writes it
        """Tensors that kernels read, shapes as above."""
        return tuple(x for x in (self.x, *self.layers) if x is not None)

    @property
    def layers(self) -> tuple[Tensor | None, ...]:
        """Both weights, (I, D) and (F, I), each with its bias or None behind it."""
        return self.weight, self.bias, self.second, self.second_bias


def is_tiled(weight: Tensor) -> bool:
    """Whether ``weight``, of two axes otherwise, is packed for our own kernel: (F / 32, D / 32, 1024)."""
    return weight.dim() == 3


def fit_tiles(call: LinearCall | FeedForwardCall) -> bool:
    """Whether the layers follow each other, are contiguous, and have sizes that are multiples of 32."""
    features, layers = call.x.shape[-1], call.layers
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        if weight is None or weight.dim() != 2 or weight.shape[1] != features or not weight.is_contiguous():
            return False
        if any(size % TILE_MULTIPLE or not size for size in weight.shape):
            return False
        if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_contiguous()):
            return False
        features = weight.shape[0]
    return bool(call.x.numel())


def trains_in_bfloat16(call: LinearCall | FeedForwardCall) -> bool:
    """Whether autocast wants bfloat16 products of float32 weights."""
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    given = (part for part in call.layers if part is not None)
    return autocast and call.x.dtype in (torch.float32, torch.bfloat16) and all(y.dtype == torch.float32 for y in given)


def on_cpu(call: LinearCall | FeedForwardCall) -> bool:
    """Whether all tensors are torch's own kind on a CPU, whatever their dtype."""
    return all(x.device.type == "cpu" and type(x) in (Tensor, torch.nn.Parameter) for x in call.tensors)
