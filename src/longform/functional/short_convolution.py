"""A depthwise convolution over neighbouring tokens, added to what it reads: shifted tensors, or oneDNN's on a CPU.

Axes: B batch, n tokens, D features, c taps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from longform.functional import dispatch
from longform.functional.conditions import EAGER, ON_CPU, Call
from longform.functional.dispatch import Condition, Kernel


@dataclass(eq=False)
class ConvolutionCall(Call):
    """``x`` (B, n, D) and ``taps`` (c, D); ``causal``: of each token and those before it."""

    x: Tensor
    taps: Tensor
    causal: bool

    def __post_init__(self) -> None:
        self.tensors = (self.x, self.taps)


def reach_of(taps: int, *, causal: bool) -> int:
    """Tokens that count on either side of each, or before it in a causal convolution."""
    return taps - 1 if causal else taps // 2


def add_shifted(out: Tensor, x: Tensor, taps: Tensor, *, axis: int, causal: bool) -> Tensor:
    """``out`` plus x (B, ..., D) convolved along ``axis`` with taps (c, D).

    A sum of shifted tensors: under torch.compile one kernel, and nn.Conv1d diverged there in bfloat16 (torch 2.11).
    """
    length, before = x.shape[axis], reach_of(len(taps), causal=causal)
    around = pad(x, (0, 0) * (x.dim() - 1 - axis) + (before, 0 if causal else before))
    for place, tap in enumerate(taps.to(x.dtype)):
        out = torch.addcmul(out, around.narrow(axis, place, length), tap)
    return out


def _by_formula(call: ConvolutionCall) -> Tensor:
    return add_shifted(call.x, call.x, call.taps, axis=1, causal=call.causal)


def _channels_last(call: ConvolutionCall) -> Tensor:
    # Tokens are the rows of an image one wide whose channels are last in memory; in float32, since in bfloat16 oneDNN
    # takes long without units for it. On one AVX2 core 8,192 tokens of 384 features took 20 ms forward and backward,
    # shifted tensors 99, in bfloat16 52; of 512 tokens 1.3 and 2.1.
    x, reach = call.x, reach_of(len(call.taps), causal=call.causal)
    image = x.float().unsqueeze(2).permute(0, 3, 1, 2)  # (B, D, n, 1)
    taps = call.taps.float().mT[:, None, :, None]
    with torch.autocast("cpu", enabled=False):
        out = conv2d(image, taps, padding=(reach, 0), groups=x.shape[2])[:, :, : x.shape[1]]
    return x + out.permute(0, 2, 3, 1).squeeze(2).to(x.dtype)


NOT_DOUBLE = Condition("no float64 tensors", lambda call: call.x.dtype != torch.float64)
SOME_TOKENS = Condition("at least one token", lambda call: call.x.numel() > 0)
SHORT_CONVOLUTION = dispatch.operation(
    "short_convolution",
    Kernel("channels_last", _channels_last, (ON_CPU, NOT_DOUBLE, SOME_TOKENS, EAGER)),
    Kernel("formula", _by_formula),
)


def short_convolution(x: Tensor, taps: Tensor, *, causal: bool = False) -> Tensor:
    """x (B, n, D) plus its depthwise convolution with taps (c, D) over the tokens around each, zeros beyond it."""
    return dispatch.run(SHORT_CONVOLUTION, ConvolutionCall(x, taps, causal))
