"""A short convolution over neighbouring tokens, added to what enters the attention of a layer.

Tokens meet their neighbours before they are shortened, so that a slot of a run can hold more than a mean of single
tokens (Gated DeltaNet and others put one in front of linear attention for the same reason).

Axes: B batch, n tokens, D features, c taps, r axes of a grid.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from longform.functional.dispatch import is_traced
from longform.functional.masks import blank_padding


class ShortConvolution(nn.Module):
    """x plus a depthwise convolution of x over ``taps`` tokens around each, an odd number; zero at first.

    Begun at zero it changes nothing until it is trained. ``hidden_size`` D features, each with taps of its own.
    ``causal``: over each token and those before it. ``axes`` r: of grids, with taps along each axis.
    """

    def __init__(self, hidden_size: int, taps: int, *, causal: bool = False, axes: int = 1) -> None:
        super().__init__()
        self.causal = causal
        self.weight = nn.Parameter(torch.zeros((taps, hidden_size) if axes == 1 else (axes, taps, hidden_size)))

    @property
    def reach(self) -> int:
        """Tokens that count on either side, or before each in a causal one."""
        taps = self.weight.shape[-2]
        return taps - 1 if self.causal else taps // 2

    def forward(self, x: Tensor, mask: Tensor | None = None, grid: tuple[int, ...] | None = None) -> Tensor:
        """x (B, n, D), padding of bool ``mask`` (B, n) zero -> (B, n, D), likewise.

        ``grid``: tokens along each axis of the grid that the last tokens are; those before it stay as they are.
        """
        taps = self.weight.to(x.dtype)
        if grid is None or len(grid) == 1:
            by_library = x.is_cpu and x.dtype != torch.float64 and not is_traced()
            out = self._by_library(x) if by_library else self._along(x, x, 1, taps)
            return blank_padding(out, mask)
        prefix = x.shape[1] - math.prod(grid)
        cells = x[:, prefix:].unflatten(1, grid)
        out = cells
        for axis, along in enumerate(taps):
            out = self._along(out, cells, axis + 1, along)
        return blank_padding(torch.cat([x[:, :prefix], out.flatten(1, len(grid))], dim=1), mask)

    def _by_library(self, x: Tensor) -> Tensor:
        """x (B, n, D) plus its convolution, by oneDNN's for images with channels last, in float32.

        On a CPU it takes a fifth of the time of shifted tensors for 8,192 tokens of 384 features and back.
        """
        taps = self.weight.float().mT[:, None, :, None]
        image = x.float().unsqueeze(2).permute(0, 3, 1, 2)  # (B, D, n, 1), with its channels last in memory
        with torch.autocast("cpu", enabled=False):  # in bfloat16 it takes fifty times as long without units for that
            out = conv2d(image, taps, padding=(self.reach, 0), groups=x.shape[2])[:, :, : x.shape[1]]
        return x + out.permute(0, 2, 3, 1).squeeze(2).to(x.dtype)

    def _along(self, out: Tensor, x: Tensor, axis: int, taps: Tensor) -> Tensor:
        """``out`` plus x (B, ..., D) convolved along ``axis`` with taps (c, D).

        A sum of shifted tensors: under torch.compile one kernel, and nn.Conv1d diverged there in bfloat16 (torch 2.11).
        """
        length, before = x.shape[axis], self.reach
        around = pad(x, (0, 0) * (x.dim() - 1 - axis) + (before, 0 if self.causal else before))
        for place, tap in enumerate(taps):
            out = torch.addcmul(out, around.narrow(axis, place, length), tap)
        return out

    def extra_repr(self) -> str:
        """The taps, for print(model)."""
        return f"taps={self.weight.shape[-2]}"
