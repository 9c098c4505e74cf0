"""A short convolution over neighbouring tokens, added to what enters the attention of a layer.

Tokens meet their neighbours before they are shortened, so that a slot of a run can hold more than a mean of single
tokens (Gated DeltaNet and others put one in front of linear attention for the same reason).

Axes: B batch, n tokens, D features, c taps, r axes of a grid.
"""

import math

import torch
from torch import Tensor, nn

from longform.functional.masks import blank_padding
from longform.functional.short_convolution import add_shifted, reach_of, short_convolution


class ShortConvolution(nn.Module):
    """x plus a depthwise convolution of x over ``taps`` tokens around each, an odd number; zero at first.

    Begun at zero it changes nothing until it is trained. ``hidden_size`` D features, each with other taps.
    ``causal``: over each token and those before it. ``axes`` r: of grids, with taps along each axis.
    """

    def __init__(self, hidden_size: int, taps: int, *, causal: bool = False, axes: int = 1) -> None:
        super().__init__()
        self.causal = causal
        self.weight = nn.Parameter(torch.empty((taps, hidden_size) if axes == 1 else (axes, taps, hidden_size)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to zero."""
        nn.init.zeros_(self.weight)

    @property
    def reach(self) -> int:
        """Tokens that count on either side, or before each in a causal one."""
        return reach_of(self.weight.shape[-2], causal=self.causal)

    def forward(self, x: Tensor, mask: Tensor | None = None, grid: tuple[int, ...] | None = None) -> Tensor:
        """x (B, n, D), padding of bool ``mask`` (B, n) zero -> (B, n, D), likewise.

        ``grid``: tokens along each axis of the grid that the last tokens are; those before it stay as they are.
        """
        if grid is None or len(grid) == 1:
            out = short_convolution(x, self.weight, causal=self.causal)
            return out if mask is None else blank_padding(out, mask)
        sinks = x.shape[1] - math.prod(grid)
        cells = x[:, sinks:].unflatten(1, grid)
        out = cells
        for axis, taps in enumerate(self.weight):
            out = add_shifted(out, cells, taps, axis=axis + 1, causal=self.causal)
        return blank_padding(torch.cat([x[:, :sinks], out.flatten(1, len(grid))], dim=1), mask)

    def extra_repr(self) -> str:
        """The taps, for print(model)."""
        return f"taps={self.weight.shape[-2]}"
