"""A short convolution over neighbouring tokens, added to what enters the attention of a layer.

Tokens meet their neighbours before they are shortened, so that a slot of a run can hold more than a mean of single
tokens (Gated DeltaNet and others put one in front of linear attention for the same reason).

Axes: B batch, n tokens, D features, c taps.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from longform.functional.masks import blank_padding


class ShortConvolution(nn.Module):
    """x plus a depthwise convolution of x over ``taps`` tokens around each, an odd number; zero at first.

    Begun at zero it changes nothing until it is trained. ``hidden_size`` D features, each with taps of its own.
    """

    def __init__(self, hidden_size: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(taps, hidden_size))

    @property
    def reach(self) -> int:
        """Tokens that count on either side."""
        return self.weight.shape[0] // 2

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, n, D), padding of bool ``mask`` (B, n) zero -> (B, n, D), likewise.

        A sum of shifted tensors: under torch.compile one kernel, and nn.Conv1d diverged there in bfloat16 (torch 2.11).
        """
        length, taps = x.shape[1], self.weight.to(x.dtype)
        around = pad(x, (0, 0, self.reach, self.reach))
        out = x
        for place, tap in enumerate(taps):
            out = torch.addcmul(out, around[:, place : place + length], tap)
        return blank_padding(out, mask)

    def extra_repr(self) -> str:
        """The taps, for print(model)."""
        return f"taps={self.weight.shape[0]}"
