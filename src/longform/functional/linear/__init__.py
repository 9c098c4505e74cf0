"""x Wᵀ + b with a weight that was packed once for inference on a CPU: GELU or a residual in the same pass.

The layout of a packed weight (``pack``) says whose it is, our own kernel's or oneDNN's. A plain weight is torch's.

Axes: D inputs, F outputs.
"""

import torch
from torch import Tensor
from torch.nn import functional

from longform.functional import dispatch
from longform.functional.dispatch import Condition, Kernel
from longform.functional.linear import amx, onednn
from longform.functional.linear.call import LinearCall, is_tiled

LINEAR = dispatch.operation(
    "linear",
    Kernel("amx", amx.infer, (Condition("a weight packed for our own kernel", lambda call: is_tiled(call.weight)),)),
    Kernel("onednn", onednn.infer, (Condition("a weight packed for oneDNN", lambda call: call.weight.is_mkldnn),)),
    Kernel("torch", lambda call: functional.linear(call.x, call.weight, call.bias)),
)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., D) times weight (F, D), plain or packed, transposed, plus bias (F): (..., F)."""
    if weight.is_mkldnn or weight.dim() == 3:
        return packed_linear(x, weight, bias)
    return functional.linear(x, weight, bias)


def packed_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, gelu: bool = False, residual: Tensor | None = None
) -> Tensor:
    """x (..., D) times a packed weight (F, D) transposed, plus bias (F), without gradients: (..., F).

    Then exact ``gelu``, or plus ``residual`` (..., F).
    """
    return dispatch.run(LINEAR, LinearCall(x, weight, bias, gelu, residual))


def can_pack(weight: Tensor, *, kernel: str | None = None) -> bool:
    """Whether a packed form of ``weight`` (F, D) makes products faster; ``kernel``: "amx", "onednn", or None for
    either.
    """
    if kernel != "onednn" and amx.fits(weight):
        return True
    ready = weight.device.type == "cpu" and weight.numel() > 0 and torch.backends.mkldnn.enabled
    return bool(kernel != "amx" and ready and weight.dtype in onednn.supported_dtypes())


def pack(weight: Tensor, *, kernel: str | None = None) -> Tensor:
    """``weight`` (F, D) as our own kernel reads it where it fits, else as oneDNN does; ``kernel``: as above."""
    with torch.inference_mode(mode=False), torch.no_grad():
        return amx.tiled(weight.detach()) if kernel != "onednn" and amx.fits(weight) else onednn.pack(weight)
