"""The feed-forward part of a layer."""

from collections.abc import Callable

from torch import Tensor, nn

from longform.functional.linear.amx_training import linear_trains_natively, trained_feed_forward
from longform.layers.linear import apply_linear, is_plain


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
            if is_plain(self.intermediate, nn.Linear) and is_plain(self.output, nn.Linear):
                layers = (self.intermediate.weight, self.intermediate.bias, self.output.weight, self.output.bias)
                if linear_trains_natively(hidden, *layers):
                    out = trained_feed_forward(hidden, *layers)
                    return out if residual is None else residual + out
            wide = apply_linear(self.intermediate, hidden, with_gelu=True)
        else:
            wide = activation(apply_linear(self.intermediate, hidden))
        return apply_linear(self.output, wide, residual=residual)
