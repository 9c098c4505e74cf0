"""A short convolution over neighbouring tokens, added to what enters the attention of a layer.

Tokens meet their neighbours before they are shortened, so that a slot of a run can hold more than a mean of single
tokens (Gated DeltaNet and others put one in front of linear attention for the same reason).

Axes: B batch, n tokens, D features, c taps, r axes of a grid.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from longform.functional.execution import Execution, execution_mode
from longform.functional.masks import blank_padding


class ShortConvolution(nn.Module):
    """x plus a depthwise convolution of x over ``taps`` tokens around each, an odd number; zero at first.

    Begun at zero it changes nothing until it is trained. ``hidden_size`` D features, a row of taps each. ``causal``:
    over each token and those before it. ``axes`` r: of grids, with taps along each axis.
    """

    def __init__(self, hidden_size: int, taps: int, *, causal: bool = False, axes: int = 1) -> None:
        super().__init__()
        self.reach = taps - 1 if causal else taps // 2  # tokens that count before each
        self.weight = nn.Parameter(torch.empty((taps, hidden_size) if axes == 1 else (axes, taps, hidden_size)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to zero."""
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None, grid: tuple[int, ...] | None = None) -> Tensor:
        """x (B, n, D), padding of bool ``mask`` (B, n) zero -> (B, n, D), likewise.

        ``grid``: tokens along each axis of the grid that the last tokens are; those before it stay as they are.
        """
        if grid is None or len(grid) == 1:
            out = short_convolution(x, self.weight, before=self.reach)
            return out if mask is None else blank_padding(out, mask)
        sinks = x.shape[1] - math.prod(grid)
        cells = x[:, sinks:].unflatten(1, grid)
        out = cells
        for axis, taps in enumerate(self.weight):
            out = add_shifted(out, cells, taps, axis=axis + 1, before=self.reach)
        return blank_padding(torch.cat([x[:, :sinks], out.flatten(1, len(grid))], dim=1), mask)

    def extra_repr(self) -> str:
        """The taps, for print(model)."""
        return f"taps={self.weight.shape[-2]}"


def short_convolution(x: Tensor, taps: Tensor, *, before: int) -> Tensor:
    """x (B, n, D) plus its depthwise convolution with taps (c, D): the token, ``before`` tokens before it, and as many
    after it as there are taps left; zeros beyond the text.

    On a CPU by oneDNN, for which tokens are rows of an image one wide, channels last in memory. In float32, since in
    bfloat16 it takes long without units for it: on one AVX2 core 8,192 tokens of 384 features took 20 ms forward and
    backward, shifted tensors 99, in bfloat16 52; of 512 tokens 1.3 and 2.1.
    """
    carried_out = execution_mode() in (Execution.PLAIN, Execution.OBSERVED)
    if not (carried_out and x.is_cpu and x.dtype != torch.float64 and x.numel()):
        return add_shifted(x, x, taps, axis=1, before=before)
    image = x.float().unsqueeze(2).permute(0, 3, 1, 2)  # (B, D, n, 1)
    # torch.convolution is under conv2d, which autocast would round.
    out = torch.convolution(
        image, taps.float().mT[:, None, :, None], None, (1, 1), (before, 0), (1, 1), False, (0, 0), x.shape[2]
    )
    return x + out[:, :, : x.shape[1]].permute(0, 2, 3, 1).squeeze(2).to(x.dtype)


def add_shifted(out: Tensor, x: Tensor, taps: Tensor, *, axis: int, before: int) -> Tensor:
    """``out`` plus x (B, ..., D) convolved along ``axis`` with taps (c, D), as ``short_convolution``.

    A sum of shifted tensors: under torch.compile one kernel, and nn.Conv1d diverged there in bfloat16 (torch 2.11).
    """
    around = pad(x, (0, 0) * (x.dim() - 1 - axis) + (before, len(taps) - 1 - before))
    for place, tap in enumerate(taps.to(x.dtype)):
        out = torch.addcmul(out, around.narrow(axis, place, x.shape[axis]), tap)
    return out
