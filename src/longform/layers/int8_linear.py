"""A linear layer in 8-bit integers: weights rounded once, inputs row by row as they come (dynamic quantisation).

Axes: n rows (tokens), D inputs, F outputs.
"""

from typing import Any

import torch
from torch import Tensor, nn

from longform.errors import ConfigurationError, InputError
from longform.layers.inference_only import check_inference_input

LARGEST = 127
OTHERWISE = "load the float32 model again, then quantise it, and leave it float32 on the CPU"
ROWS = 256  # at a time, so that what is written between the product and the result stays in the cache


class Int8Linear(nn.Module):
    """What ``layer`` computes, with its weight (F, D) in int8, one scale an output.

    Each row x of the input becomes middle + step q, q in -127 ... 127, so that x Wᵀ = s (middle Σ Ŵ + step q Ŵᵀ) with
    W ≈ s Ŵ. (The sum must be that of the rounded weights: in a row with one large number q is about -middle / step
    almost everywhere, and both terms must cancel.) float32 in and out, CPU, no gradient. It is not saved:
    ``state_dict`` raises ConfigurationError.
    """

    weight: Tensor
    scale: Tensor
    sums: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scale = (weight.abs().amax(dim=1) / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        whole = (weight / scale[:, None]).round()
        self.register_buffer("weight", whole.to(torch.int8).t(), persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("sums", whole.sum(dim=1) * scale, persistent=False)
        self.register_buffer(
            "bias", None if layer.bias is None else layer.bias.detach().float().clone(), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) float32 -> (..., F).

        Raises InputError where a gradient is wanted, under autocast, for another dtype or device, and when the layer
        was cast.
        """
        check_inference_input(x, dtype=torch.float32, made="quantised", otherwise=OTHERWISE)
        if self.scale.dtype != torch.float32:
            raise InputError(f"quantised for torch.float32, and cast to {self.scale.dtype}: {OTHERWISE}")
        rows = x.reshape(-1, self.in_features)
        if torch.compiler.is_compiling():
            return self._product(rows).view(*x.shape[:-1], self.out_features)
        out = x.new_empty(len(rows), self.out_features)
        for start in range(0, len(rows), ROWS):
            out[start : start + ROWS] = self._product(rows[start : start + ROWS])
        return out.view(*x.shape[:-1], self.out_features)

    def _product(self, x: Tensor) -> Tensor:
        """x (n, D) -> (n, F)."""
        low, high = torch.aminmax(x, dim=1, keepdim=True)
        middle = (low + high) / 2
        step = ((high - low) / (2 * LARGEST)).clamp_min(torch.finfo(torch.float32).tiny)
        whole = ((x - middle) / step).round_().to(torch.int8)
        out = (torch._int_mm(whole, self.weight) * self.scale).mul_(step).addr_(middle[:, 0], self.sums)
        return out if self.bias is None else out.add_(self.bias)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        raise ConfigurationError("a quantised model is not saved: save the float32 model, quantise after loading it")
