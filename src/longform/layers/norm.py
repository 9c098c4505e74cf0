"""Layer normalisation by the fastest means, where nothing stands in its way."""

import torch
from torch import Tensor, nn

from longform.functional.native_norm_gradient import NormOfSum, norm_of_sum_trains
from longform.functional.norm import native_layer_norm, native_norm_serves
from longform.layers.linear import is_plain


def apply_norm(layer: nn.Module, x: Tensor, *, in_place: bool = False) -> Tensor:
    """layer(x), x of shape (..., F) -> (..., F); ``in_place``: nobody needs x afterwards, its memory may be used."""
    if is_plain(layer, nn.LayerNorm):
        assert isinstance(layer, nn.LayerNorm)
        weight, bias = layer.weight, layer.bias
        if layer.normalized_shape == x.shape[-1:] and native_norm_serves(x, weight, bias):
            return native_layer_norm(x, weight, bias, epsilon=layer.eps, in_place=in_place)
    return layer(x)


def add_and_norm(layer: nn.Module, residual: Tensor, branch: Tensor) -> Tensor:
    """layer(residual + branch), all of shape (..., F)."""
    return _add_and_norm(layer, residual, branch, with_rounded=False)[0]


def add_norm_and_round(layer: nn.Module, residual: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
    """layer(residual + branch), all of shape (..., F), and what products under autocast round it to, or the same."""
    out, rounded = _add_and_norm(layer, residual, branch, with_rounded=True)
    return out, out if rounded is None else rounded


def _add_and_norm(
    layer: nn.Module, residual: Tensor, branch: Tensor, *, with_rounded: bool
) -> tuple[Tensor, Tensor | None]:
    if is_plain(layer, nn.LayerNorm):
        assert isinstance(layer, nn.LayerNorm)
        weight, bias = layer.weight, layer.bias
        if layer.normalized_shape == residual.shape[-1:] and norm_of_sum_trains(residual, branch, weight, bias):
            return NormOfSum.apply(residual, branch, weight, bias, layer.eps, with_rounded)
    return apply_norm(layer, residual + branch, in_place=not torch.is_grad_enabled()), None
