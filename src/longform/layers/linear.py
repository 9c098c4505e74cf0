"""A linear layer whose kernel is chosen at each call, and checks for hooks and adapters that forbid to skip a layer.

Axes: D inputs, F outputs.
"""

from torch import Tensor, nn
from torch.nn.modules import module as all_modules
from torch.nn.utils.parametrize import type_before_parametrizations

from longform.functional.linear import linear
from longform.layers.packed_linear import PackedLinear


class Linear(nn.Linear):
    """torch's linear layer, with GELU or a residual in the same pass where a kernel does that."""

    def forward(self, input: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor:
        """input (..., D) -> (..., F), then exact ``gelu``, or plus ``residual`` (..., F)."""
        return linear(input, self.weight, self.bias, gelu=gelu, residual=residual)

    def weight_for(self, x: Tensor) -> Tensor:
        """The weight (F, D), for a product with ``x`` (..., D) or its means."""
        return self.weight


def is_watched(layer: nn.Module) -> bool:
    """Whether somebody sees or replaces what passes through ``layer``: hooks, its own or on all modules, or
    ``compile``.
    """
    everywhere = all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks
    return bool(everywhere or is_hooked(layer))


def is_hooked(layer: nn.Module) -> bool:
    """Whether ``layer`` itself has forward hooks, or another forward in its place."""
    own = layer.__dict__
    changed = "forward" in own or own.get("_compiled_call_impl") is not None
    return bool(changed or own["_forward_hooks"] or own["_forward_pre_hooks"])


def is_seen_inside(module: nn.Module) -> bool:
    """Whether a hook or another forward is on any submodule of ``module``, or one of them is in training mode.

    Asked in every pass without gradients: some 100 parts take 30 microseconds so, and 100 by ``modules()``.
    """
    if all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks:
        return True
    parts = [module]
    while parts:
        part = parts.pop()
        if part.training or is_hooked(part):
            return True
        parts += [child for child in part._modules.values() if child is not None]
    return False


def is_untouched(layer: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether ``layer`` is one of ``kinds`` (ours, where none is given) itself, which nobody adapted, quantised or
    watches.
    """
    return type(layer) in (kinds or (Linear, PackedLinear)) and not is_watched(layer)


def is_affine(layer: nn.Module) -> bool:
    """Whether ``layer`` is x Wᵀ + b of its own ``weight`` and ``bias`` and no more: no adapter, no hook, not int8.

    Parametrised weights are its own, and so are packed ones. Hooks on all modules are taken for onlookers.
    """
    return type_before_parametrizations(layer) in (Linear, nn.Linear, PackedLinear) and not is_hooked(layer)


def apply_linear(layer: nn.Module, x: Tensor, *, residual: Tensor | None = None) -> Tensor:
    """layer(x) plus ``residual`` (..., F), in one pass where ``layer`` is ours: x (..., D) -> (..., F)."""
    if residual is None:
        return layer(x)
    return layer(x, residual=residual) if is_untouched(layer) else residual + layer(x)
