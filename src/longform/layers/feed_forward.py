"""The feed-forward part of a layer."""

from collections.abc import Callable

from torch import Tensor, nn

from longform.layers.plain_linear import apply_linear, is_plain


class FeedForward(nn.Module):
    """output(activation(intermediate(x))): (B, n, ``hidden_size``) -> the same, ``intermediate_size`` wide inside."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.activation = activation
        self.output = nn.Linear(intermediate_size, hidden_size)

    def forward(self, hidden: Tensor, residual: Tensor | None = None) -> Tensor:
        """hidden (B, n, D) -> (B, n, D), with ``residual`` (B, n, D) added where it is given."""
        activation = self.activation
        if isinstance(activation, nn.GELU) and is_plain(activation, nn.GELU) and activation.approximate == "none":
            wide = apply_linear(self.intermediate, hidden, with_gelu=True)
        else:
            wide = activation(apply_linear(self.intermediate, hidden))
        return apply_linear(self.output, wide, residual=residual)
