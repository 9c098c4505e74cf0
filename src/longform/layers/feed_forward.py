"""The feed-forward part of a layer."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from longform.functional.linear import trained_feed_forward
from longform.layers.linear import TrainedLinear, are_affine, is_hooked, set_training
from longform.layers.packed_linear import FUSED, PackedLinear


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
        self.gate = nn.Linear(hidden_size, intermediate_size, bias=bias) if gated else None
        self.intermediate = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.activation = activation
        self.output = nn.Linear(intermediate_size, hidden_size, bias=bias)
        self.chunk_size = chunk_size

    def train(self, mode: bool = True) -> Self:
        """Training or inference, as of nn.Module."""
        set_training(self, mode)
        return super().train(mode)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        if type(self.output) is TrainedLinear and self._is_plain():
            first, second = self.intermediate, self.output
            return trained_feed_forward(hidden, first.weight, first.bias, second.weight, second.bias)
        if 0 < self.chunk_size < hidden.shape[1] and not torch.compiler.is_compiling():
            return torch.cat([self.output(self._inside(part)) for part in hidden.split(self.chunk_size, dim=1)], dim=1)
        return self.output(self._inside(hidden))

    def plus(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor | None]:
        """forward(hidden) (B, n, D), and the ``residual`` that is to be added, None where the last product did."""
        if type(self.output) is PackedLinear and not self.chunk_size:
            return self.output(self._inside(hidden), residual=residual), None
        return self(hidden), residual

    def _is_plain(self) -> bool:
        """Whether it is exact GELU between two layers that nobody replaced or watches."""
        exact = type(self.activation) is nn.GELU and self.activation.approximate == "none"
        if self.gate is not None or self.chunk_size or not exact or is_hooked(self.activation):
            return False
        return are_affine(self.intermediate, self.output)

    def _inside(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, ``intermediate_size``)."""
        if self.gate is not None:
            return self.activation(self.gate(hidden)) * self.intermediate(hidden)
        fuses = type(self.intermediate) in FUSED and type(self.activation) is nn.GELU
        if fuses and not (is_hooked(self.intermediate) or is_hooked(self.activation)):
            return self.intermediate(hidden, activation=self.activation)
        return self.activation(self.intermediate(hidden))
