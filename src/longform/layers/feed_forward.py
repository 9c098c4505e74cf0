"""The feed-forward part of a layer."""

from collections.abc import Callable

from torch import Tensor, nn


class FeedForward(nn.Module):
    """output(activation(intermediate(x))): (B, n, ``hidden_size``) -> the same, ``intermediate_size`` wide inside."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.activation = activation
        self.output = nn.Linear(intermediate_size, hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        return self.output(self.activation(self.intermediate(hidden)))
