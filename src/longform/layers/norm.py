"""Norms over features: torch's own, and one for inference.

Axes: F features.
"""

import torch
from torch import Tensor, nn

from longform.functional.norm import layer_norm


class InferenceNorm(nn.LayerNorm):
    """torch's layer normalisation by the fastest kernel: what ``pack_weights`` makes of an nn.LayerNorm."""

    def forward(self, input: Tensor, residual: Tensor | None = None, *, in_place: bool = False) -> Tensor:
        """input (..., F), plus ``residual`` if that is given -> (..., F).

        ``in_place``: nobody needs the input afterwards, its memory may be used.
        """
        return layer_norm(input, self.weight, self.bias, epsilon=self.eps, in_place=in_place, residual=residual)


def normalised(norm: nn.Module, x: Tensor, residual: Tensor | None) -> Tensor:
    """``norm`` of x (..., F), plus ``residual`` if there is one; x may be overwritten where no gradient is wanted."""
    if type(norm) is InferenceNorm:
        return norm(x, residual, in_place=not torch.is_grad_enabled())
    return norm(x if residual is None else residual + x)


def make_norm(kind: str, size: int, *, epsilon: float, bias: bool = True) -> nn.Module:
    """The norm of ``kind`` over ``size`` features: "layer_norm", with or without a ``bias``, or "rms_norm", which has
    none.
    """
    return nn.RMSNorm(size, eps=epsilon) if kind == "rms_norm" else nn.LayerNorm(size, eps=epsilon, bias=bias)
