"""Norms over features: layer normalisation whose kernel is chosen at each call, and torch's RMSNorm.

Axes: F features.
"""

from torch import Tensor, nn

from longform.functional.norm import layer_norm, norm_of_sum
from longform.layers.linear import is_untouched


class LayerNorm(nn.LayerNorm):
    """torch's layer normalisation over the last axis."""

    def forward(self, input: Tensor, *, in_place: bool = False) -> Tensor:
        """input (..., F) -> (..., F); ``in_place``: nobody needs it afterwards, its memory may be used."""
        return layer_norm(input, self.weight, self.bias, epsilon=self.eps, in_place=in_place)


def make_norm(kind: str, size: int, *, epsilon: float, bias: bool = True) -> nn.Module:
    """The norm of ``kind`` over ``size`` features: "layer_norm", with or without a ``bias``, or "rms_norm", which has
    none.
    """
    return nn.RMSNorm(size, eps=epsilon) if kind == "rms_norm" else LayerNorm(size, eps=epsilon, bias=bias)


def add_and_norm(norm: nn.Module, residual: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
    """norm(residual + branch), (..., F) all, and the same as products under autocast round it: one tensor where none
    do.
    """
    if is_untouched(norm, LayerNorm):
        assert isinstance(norm, LayerNorm)
        return norm_of_sum(residual, branch, norm.weight, norm.bias, epsilon=norm.eps)
    out = norm(residual + branch)
    return out, out
