"""x Wᵀ + b, with GELU or a residual in the same pass where a kernel does that, and two such layers as a feed-forward
part.

A weight may be packed once for inference (``pack``): its layout says whose it is, our own kernel's or oneDNN's.

Axes: D inputs, F outputs, I features inside a feed-forward part.
"""

import torch
from torch import Tensor
from torch.nn import functional

from longform.functional import dispatch
from longform.functional.conditions import AMX, EAGER, GRADIENT, LIBRARY, NO_GRADIENT, PLAIN
from longform.functional.dispatch import Condition, Kernel
from longform.functional.linear import amx, amx_training, onednn
from longform.functional.linear.call import (
    FeedForwardCall,
    LinearCall,
    fit_tiles,
    is_tiled,
    on_cpu,
    trains_in_bfloat16,
)


def _by_torch(call: LinearCall) -> Tensor:
    bias, residual = call.without_times()
    out = functional.linear(call.x, call.weight, bias)
    out = functional.gelu(out) if call.gelu else out
    return out if residual is None else residual + out


def _by_layers(call: FeedForwardCall) -> Tensor:
    wide = linear(call.x, call.weight, call.bias, gelu=True)
    return linear(wide, call.second, call.second_bias, residual=call.residual)


def _onednn_multiplies(call: LinearCall) -> bool:
    return bool(call.x.dtype in onednn.supported_dtypes() and call.x.numel() > 0 and torch.backends.mkldnn.enabled)


TILED = Condition("a weight packed for our own kernel", lambda call: is_tiled(call.weight))
PACKED = Condition("a weight packed for oneDNN", lambda call: call.weight.is_mkldnn)
NO_AUTOCAST = Condition("no autocast", lambda call: not torch.is_autocast_enabled("cpu"))
ONEDNN = Condition("a dtype that oneDNN multiplies on this machine", _onednn_multiplies)
TRAINING = (
    EAGER, Condition("float32 weights under autocast to bfloat16", trains_in_bfloat16), GRADIENT,
    Condition("plain tensors on a CPU", on_cpu), Condition("contiguous layers, sizes multiples of 32", fit_tiles),
    LIBRARY, AMX,
)  # fmt: skip

LINEAR = dispatch.operation(
    "linear",
    Kernel("amx", amx.infer, (TILED,)),
    Kernel("onednn_packed", onednn.infer, (PACKED,)),
    Kernel("onednn", onednn.infer, (NO_AUTOCAST, EAGER, PLAIN, NO_GRADIENT, ONEDNN)),
    Kernel("amx_training", amx_training.train, TRAINING),
    Kernel("torch", _by_torch),
)
FEED_FORWARD = dispatch.operation(
    "feed_forward",
    Kernel("amx_training", amx_training.train_feed_forward, TRAINING),
    Kernel("two_layers", _by_layers),
)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    gelu: bool = False,
    residual: Tensor | None = None,
    bias_times: Tensor | None = None,
) -> Tensor:
    """x (..., D) times weight (F, D) transposed, plus bias (F) -> (..., F).

    Then exact ``gelu``, or plus ``residual`` (..., F). ``bias_times`` (...), without either: how many times each row
    adds the bias. A packed weight serves inference alone.
    """
    assert bias_times is None or not (gelu or residual is not None)
    return dispatch.run(LINEAR, LinearCall(x, weight, bias, gelu, residual, bias_times))


def feed_forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    second: Tensor,
    second_bias: Tensor | None,
    *,
    residual: Tensor | None = None,
) -> Tensor:
    """GELU(x Wᵀ + b) W2ᵀ + b2: x (..., D), W (I, D), b (I), W2 (F, I), b2 (F), plus residual (..., F) -> (..., F)."""
    return dispatch.run(FEED_FORWARD, FeedForwardCall(x, weight, bias, second, second_bias, residual))


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
