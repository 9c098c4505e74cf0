"""The feed-forward part of a layer."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from longform.functional.linear import feed_forward
from longform.layers.linear import Linear, is_untouched


class FeedForward(nn.Module):
    """output(activation(intermediate(x))): (B, n, ``hidden_size``) -> the same, ``intermediate_size`` wide inside.

    ``gated`` (GeGLU, SwiGLU): output(activation(gate(x)) * intermediate(x)). ``bias``: of all its layers.
    ``chunk_size``: tokens of each document at a time, 0 for all (Hugging Face's ``chunk_size_feed_forward``).
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: Callable[[Tensor], Tensor],
        chunk_size: int = 0,
        *,
        gated: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.gate = Linear(hidden_size, intermediate_size, bias=bias) if gated else None
        self.intermediate = Linear(hidden_size, intermediate_size, bias=bias)
        self.activation = activation
        self.output = Linear(intermediate_size, hidden_size, bias=bias)
        self.chunk_size = chunk_size

    def forward(self, hidden: Tensor, residual: Tensor | None = None) -> Tensor:
        """hidden (B, n, D) -> (B, n, D), with ``residual`` (B, n, D) added where it is given."""
        if 0 < self.chunk_size < hidden.shape[1] and not torch.compiler.is_compiling():
            out = torch.cat([self._whole(part, None) for part in hidden.split(self.chunk_size, dim=1)], dim=1)
            return out if residual is None else residual + out
        return self._whole(hidden, residual)

    def _whole(self, hidden: Tensor, residual: Tensor | None) -> Tensor:
        if self._is_plain():  # GELU, and the residual, in the same pass as the products
            first, second = ((layer.weight_for(hidden), layer.bias) for layer in (self.intermediate, self.output))
            return feed_forward(hidden, *first, *second, residual=residual)
        wide = self.intermediate(hidden)
        out = self.output(self.activation(wide) if self.gate is None else self.activation(self.gate(hidden)) * wide)
        return out if residual is None else residual + out

    def _is_plain(self) -> bool:
        """Whether it is exact GELU between two layers that nobody replaced or watches."""
        if self.gate is not None:
            return False
        exact = isinstance(self.activation, nn.GELU) and self.activation.approximate == "none"
        return exact and is_untouched(self.activation, nn.GELU) and all(
            is_untouched(layer) for layer in (self.intermediate, self.output)
        )  # fmt: skip
