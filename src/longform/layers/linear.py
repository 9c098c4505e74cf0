"""Linear layers in training on a CPU with AMX; and checks for hooks, adapters and replaced forwards, which forbid to
compute a layer in another way than by calling it.

Axes: D inputs, F outputs.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as all_modules
from torch.nn.utils.parametrize import type_before_parametrizations

from longform.functional.linear import linear, trained_linear, trains_compiled
from longform.layers.packed_linear import PackedLinear


class Weights(NamedTuple):
    """Weight (F, D) and bias (F) or None of a linear layer that is no module: a part of one, or of one parameter."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., F)."""
        return linear(x, self.weight, self.bias)


class TrainedLinear(nn.Linear):
    """nn.Linear by the compiled kernels of training under autocast."""

    def forward(self, input: Tensor) -> Tensor:
        """input (..., D) -> (..., F)."""
        if torch.is_autocast_enabled("cpu"):
            return trained_linear(input, self.weight, self.bias)
        return functional.linear(input, self.weight, self.bias)


def set_training(parent: nn.Module, mode: bool) -> None:
    """Make the nn.Linear layers of ``parent`` itself TrainedLinear while it trains, where this machine has kernels."""
    wanted = TrainedLinear if mode and trains_compiled() else nn.Linear
    for layer in parent.children():
        if type(layer) in (nn.Linear, TrainedLinear):
            layer.__class__ = wanted  # the same parameters


def is_hooked(layer: nn.Module) -> bool:
    """Whether ``layer`` itself has forward hooks, or another forward in its place."""
    own = layer.__dict__
    replaced = "forward" in own or own.get("_compiled_call_impl") is not None
    return bool(replaced or own["_forward_hooks"] or own["_forward_pre_hooks"])


def is_seen_inside(module: nn.Module) -> bool:
    """Whether a hook or another forward is on any submodule of ``module``, or one of them is in training mode.

    Asked in every pass without gradients: some 100 parts take 30 microseconds so, and 100 by ``modules()``.
    """
    if all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks:
        return True
    parts: list[nn.Module | None] = [module]
    while parts:
        part = parts.pop()
        if part is None:
            continue
        own = part.__dict__
        if part.training or own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own:
            return True
        if own.get("_compiled_call_impl") is not None:
            return True
        parts.extend(own["_modules"].values())
    return False


def are_affine(*layers: nn.Module | Weights) -> bool:
    """Whether each of ``layers`` is x Wᵀ + b of its ``weight`` and ``bias`` and no more: no adapter, no hook, not
    int8.

    Parametrised and packed weights are its weights too. Hooks on all modules are taken for onlookers.
    """
    for layer in layers:
        if isinstance(layer, Weights):
            continue
        kind, own = type(layer), layer.__dict__
        if (
            kind not in (nn.Linear, TrainedLinear, PackedLinear)
            and type_before_parametrizations(layer) is not nn.Linear
        ):
            return False
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or "forward" in own
            or own.get("_compiled_call_impl") is not None
        ):
            return False
    return True
