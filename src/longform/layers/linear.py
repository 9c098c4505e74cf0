"""Linear layers packed for inference on a CPU; and checks for hooks, adapters and replaced forwards, which forbid to
compute a layer in another way than by calling it.

Axes: D inputs, F outputs.
"""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.utils.parametrize import type_before_parametrizations

from longform.errors import ConfigurationError, InputError
from longform.functional.execution import Execution, execution_mode
from longform.functional.linear import amx, can_pack, linear, linear_with_gelu, onednn, pack

OTHERWISE = "load the model again, move or cast it, then pack"


class Weights(NamedTuple):
    """Weight (F, D) and bias (F) or None of a linear layer that is no module: a part of one, or of one parameter."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., F)."""
        return linear(x, self.weight, self.bias)


class _Packed(NamedTuple):
    weight: Tensor  # opaque

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Packed":
        return self  # nobody can write to it

    def __reduce__(self) -> Any:
        raise ConfigurationError("a packed model is not pickled: send the model, and pack it where it arrives")


class PackedLinear(nn.Module):
    """Linear ``layer`` whose weight (F, D) is laid out once; the plain weight is not kept. CPU, no gradient.

    It is not saved: ``state_dict`` raises ConfigurationError. ``kernel``: whose layout, "amx" (our own) or "onednn";
    None for our own where it fits.
    """

    bias: Tensor | None

    def __init__(self, layer: nn.Linear, *, kernel: str | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.dtype, self.weight_bytes = layer.weight.dtype, layer.weight.nbytes
        self._packed = _Packed(pack(layer.weight, kernel=kernel))  # no buffer: opaque tensors cannot be moved or cast
        self._multiply = amx.infer if amx.is_tiled(self._packed.weight) else onednn.infer
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().clone(), persistent=False)

    def forward(self, x: Tensor, *, activation: nn.GELU | None = None, residual: Tensor | None = None) -> Tensor:
        """x (..., D) -> (..., F), then the ``activation``, or plus ``residual`` (..., F) of x's dtype.

        An exact GELU is computed with the product where nobody watches the layer or the activation. Raises InputError
        where a gradient is wanted, in torch.compile, under autocast, for another dtype or device.
        """
        if torch.compiler.is_compiling():
            raise InputError("a packed layer is not compiled: compile the model without packing its weights")
        if torch.is_autocast_enabled("cpu"):
            raise InputError(f"packed for {self.dtype}, and called under autocast: {OTHERWISE}")
        if torch.is_grad_enabled() and x.requires_grad:
            raise InputError("a packed layer has no gradient: use torch.no_grad(), or train before it is packed")
        if x.dtype != self.dtype or x.device.type != "cpu":
            raise InputError(f"packed for {self.dtype} on the CPU, and given {x.dtype} on {x.device.type}: {OTHERWISE}")
        if not x.numel():
            return x.new_empty(*x.shape[:-1], self.out_features)
        gelu = activation is not None and activation.approximate == "none"
        out = self._multiply(x, self._packed.weight, self.bias, gelu=gelu, residual=residual)
        return out if activation is None or gelu else activation(out)

    @property
    def weight(self) -> Tensor:
        """The weight (F, D), opaque, for functional.linear."""
        return self._packed.weight

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        raise ConfigurationError("a packed model is not saved: save it before packing")


class InferenceLinear(nn.Linear):
    """nn.Linear that computes a GELU with the product where the device can: what ``pack_weights`` makes on a GPU."""

    def forward(self, input: Tensor, *, activation: nn.GELU | None = None) -> Tensor:
        """input (..., D) -> (..., F), then the ``activation``."""
        gelu = activation is not None and activation.approximate == "none"
        out = linear_with_gelu(input, self.weight, self.bias) if gelu else super().forward(input)
        return out if activation is None or gelu else activation(out)


FUSED = (PackedLinear, InferenceLinear)


def add_to(residual: Tensor, layer: nn.Module, x: Tensor) -> Tensor:
    """``residual`` (..., F) plus layer(x), x (..., D): in the pass of a packed layer's product."""
    return layer(x, residual=residual) if type(layer) is PackedLinear else residual + layer(x)


def pack_linear(layer: nn.Linear, *, kernel: str | None = None) -> nn.Module:
    """A PackedLinear of ``layer``, weight of shape (F, D); the layer itself where packing brings nothing.

    ``kernel``: as in PackedLinear.
    """
    return PackedLinear(layer, kernel=kernel) if can_pack(layer.weight, kernel=kernel) else layer


def is_hooked(*layers: nn.Module | Weights | None) -> bool:
    """Whether any of ``layers`` has hooks, forward or backward, its own or those of all modules, or another forward in
    its place: then it is computed by calling it and in no other way.

    Hooks on all modules are not asked under a dispatch mode: a FlopCounterMode has some, and counts what runs without.
    """
    if _has_any_global_hook() and execution_mode() is not Execution.OBSERVED:
        return True
    for layer in layers:
        if layer is None or isinstance(layer, Weights):
            continue
        own = layer.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return True
        if "forward" in own or own.get("_compiled_call_impl") is not None:
            return True
    return False


def is_seen_inside(module: nn.Module) -> bool:
    """Whether ``module`` or a submodule of it is hooked (``is_hooked``) or in training mode.

    Asked in every pass without gradients: some 100 parts take 30 microseconds so, and 100 by ``modules()``.
    """
    parts: list[nn.Module | None] = [module]
    for part in parts:
        if part is not None:
            if part.training:
                return True
            parts.extend(part.__dict__["_modules"].values())
    return is_hooked(*parts)


def are_affine(*layers: nn.Module | Weights) -> bool:
    """Whether each of ``layers`` is x Wᵀ + b of its ``weight`` and ``bias`` and no more: no adapter, no hook, not
    int8.

    Parametrised and packed weights are its weights too.
    """
    for layer in layers:
        plain = type(layer) in (nn.Linear, PackedLinear, Weights)
        if not plain and type_before_parametrizations(cast(nn.Module, layer)) is not nn.Linear:
            return False
    return not is_hooked(*layers)
