"""A linear layer whose weight is in the layout of the CPU's matrix products, for inference.

Axes: D inputs, F outputs.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform.errors import ConfigurationError, InputError
from longform.functional.linear import amx, can_pack, linear_with_gelu, onednn, pack

OTHERWISE = "load the model again, move or cast it, then pack"


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
