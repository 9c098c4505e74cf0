"""A linear layer as one fused call, where nothing stands in its way."""

import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules
from torch.nn.utils.parametrize import type_before_parametrizations

from longform.functional.linear import fused_linear
from longform.layers.packed_linear import PackedLinear


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether ``layer`` is torch's own ``kind``, unhooked: not quantised, adapted, parametrised, offloaded.

    In a compiled graph, which fuses by itself, none is.
    """
    return not torch.compiler.is_compiling() and type(layer) is kind and not is_watched(layer)


def is_watched(layer: nn.Module) -> bool:
    """Whether somebody sees or replaces what passes through ``layer`` by itself."""
    everywhere = all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks
    return bool(everywhere or is_hooked(layer))


def is_affine(layer: nn.Module) -> bool:
    """Whether ``layer`` is x Wᵀ + b of its own ``weight`` and ``bias`` and no more: no adapter, no hook, not int8.

    Parametrised weights are its own, and so are packed ones. Hooks on all modules are taken for onlookers.
    """
    return type_before_parametrizations(layer) in (nn.Linear, PackedLinear) and not is_hooked(layer)


def is_hooked(layer: nn.Module) -> bool:
    """Whether ``layer`` itself has forward hooks, or another forward in its place."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or "forward" in layer.__dict__)


def apply_linear(layer: nn.Module, x: Tensor, *, with_gelu: bool = False, residual: Tensor | None = None) -> Tensor:
    """layer(x), then exact GELU ``with_gelu``, or plus ``residual`` (..., F): x of shape (..., D) -> (..., F)."""
    if is_plain(layer, nn.Linear):
        assert isinstance(layer, nn.Linear)
        return fused_linear(x, layer.weight, layer.bias, with_gelu=with_gelu, residual=residual)
    if is_plain(layer, PackedLinear):
        return layer(x, with_gelu=with_gelu, residual=residual)
    out = layer(x)
    return nn.functional.gelu(out) if with_gelu else out if residual is None else residual + out
