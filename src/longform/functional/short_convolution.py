"""A depthwise convolution over neighbouring tokens, added to what it reads: shifted tensors, or oneDNN's on a CPU.

Axes: B batch, n tokens, D features, c taps.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.execution import Execution, execution_mode


def short_convolution(x: Tensor, taps: Tensor, *, causal: bool = False) -> Tensor:
    """x (B, n, D) plus its depthwise convolution with taps (c, D) over the tokens around each, zeros beyond it.

    ``causal``: over each token and those before it.
    """
    carried_out = execution_mode() in (Execution.PLAIN, Execution.OBSERVED)
    if carried_out and x.is_cpu and x.dtype != torch.float64 and x.numel():
        return add_by_onednn(x, taps, causal=causal)
    return add_shifted(x, x, taps, axis=1, causal=causal)


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


def add_by_onednn(x: Tensor, taps: Tensor, *, causal: bool) -> Tensor:
    """``short_convolution`` of x (B, n, D) by oneDNN: tokens are rows of an image one wide, channels last in memory.

    In float32, since in bfloat16 oneDNN takes long without units for it. On one AVX2 core 8,192 tokens of 384 features
    took 20 ms forward and backward, shifted tensors 99, in bfloat16 52; of 512 tokens 1.3 and 2.1.
    """
    reach = len(taps) - 1 if causal else len(taps) // 2
    image = x.float().unsqueeze(2).permute(0, 3, 1, 2)  # (B, D, n, 1)
    # torch.convolution is under conv2d, which autocast would round.
    out = torch.convolution(
        image, taps.float().mT[:, None, :, None], None, (1, 1), (reach, 0), (1, 1), False, (0, 0), x.shape[2]
    )
    return x + out[:, :, : x.shape[1]].permute(0, 2, 3, 1).squeeze(2).to(x.dtype)
