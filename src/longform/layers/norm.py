"""Norms over features: torch's own, and one for inference on a GPU.

Axes: F features.
"""

from torch import Tensor, nn

from longform.functional.norm import layer_norm


class InferenceNorm(nn.LayerNorm):
    """Layer normalisation that adds a residual in its pass: what ``pack_weights`` makes of an nn.LayerNorm on a GPU."""

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """input (..., F), plus ``residual`` if that is given -> (..., F)."""
        return layer_norm(input, self.weight, self.bias, epsilon=self.eps, residual=residual)


def normalised(norm: nn.Module, x: Tensor, residual: Tensor | None) -> Tensor:
    """``norm`` of x (..., F), plus ``residual`` if there is one."""
    if type(norm) is InferenceNorm:
        return norm(x, residual)
    return norm(x if residual is None else residual + x)


def make_norm(kind: str, size: int, *, epsilon: float, bias: bool = True) -> nn.Module:
    """The norm of ``kind`` over ``size`` features: "layer_norm", with or without a ``bias``, or "rms_norm", which has
    none.
    """
    return nn.RMSNorm(size, eps=epsilon) if kind == "rms_norm" else nn.LayerNorm(size, eps=epsilon, bias=bias)
