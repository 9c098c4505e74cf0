"""x Wᵀ + b on a CPU where torch's own is not the fastest: with packed weights, and in training under autocast with AMX.

The layout of a packed weight (``pack``), for inference, says whose it is, our own kernel's or oneDNN's.

Axes: D inputs, F outputs, I features inside a feed-forward part.
"""

import torch
from torch import Tensor
from torch.nn import functional

from longform.functional import dispatch
from longform.functional.conditions import AMX, EAGER, GRADIENT, LIBRARY, NO_GRADIENT, ON_CUDA
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


def _by_layers(call: FeedForwardCall) -> Tensor:
    wide = functional.gelu(trained_linear(call.x, call.weight, call.bias))
    return trained_linear(wide, call.second, call.second_bias)


def _by_torch(call: LinearCall) -> Tensor:
    out = functional.linear(call.x, call.weight, call.bias)
    return functional.gelu(out) if call.gelu else out


def _with_epilogue(call: LinearCall) -> Tensor:
    # cuBLAS approximates GELU by a tanh before it rounds: in bfloat16 and float16 that is nearer to the exact one than
    # an exact one of a rounded product (1.7e-3 and 2.6e-3 away in bfloat16, of normal numbers).
    rows, bias = call.x.reshape(-1, call.x.shape[-1]), call.bias
    assert bias is not None
    out = torch._addmm_activation(bias, rows, call.weight.mT, use_gelu=True)
    return out.view(*call.x.shape[:-1], -1)


def _is_whole(call: LinearCall) -> bool:
    return call.x.numel() > 0 and all(x.dtype == call.x.dtype for x in call.tensors)


def _is_half(call: LinearCall) -> bool:
    return call.gelu and call.bias is not None and call.x.dtype in (torch.bfloat16, torch.float16)


TRAINING = (
    EAGER, GRADIENT, Condition("plain tensors on a CPU", on_cpu),
    Condition("float32 weights under autocast to bfloat16", trains_in_bfloat16, of_values=True),
    Condition("contiguous layers, sizes multiples of 32", fit_tiles, of_values=True), LIBRARY, AMX,
)  # fmt: skip
LINEAR = dispatch.operation(
    "linear",
    Kernel("amx", amx.infer, (Condition("a weight packed for our own kernel", lambda call: is_tiled(call.weight)),)),
    Kernel("onednn", onednn.infer, (Condition("a weight packed for oneDNN", lambda call: call.weight.is_mkldnn),)),
    Kernel("amx_training", amx_training.train, TRAINING),
    Kernel("epilogue", _with_epilogue, (
        EAGER, NO_GRADIENT, Condition("a bias and an exact GELU in bfloat16 or float16", _is_half),
        Condition("tensors of one dtype, not empty", _is_whole), ON_CUDA,
    )),
    Kernel("torch", _by_torch),
)  # fmt: skip
FEED_FORWARD = dispatch.operation(
    "feed_forward",
    Kernel("amx_training", amx_training.train_feed_forward, TRAINING),
    Kernel("two_layers", _by_layers),
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


def linear_with_gelu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Exact GELU of x (..., D) times weight (F, D) transposed, plus bias (F): (..., F)."""
    return dispatch.run(LINEAR, LinearCall(x, weight, bias, gelu=True))


def trains_compiled() -> bool:
    """Whether this machine has compiled kernels for linear layers in training."""
    return amx.has_units()


def trained_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., D) times weight (F, D) transposed, plus bias (F), by the kernel that trains fastest: (..., F)."""
    return dispatch.run(LINEAR, LinearCall(x, weight, bias))


def trained_feed_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, second: Tensor, second_bias: Tensor | None
) -> Tensor:
    """GELU(x Wᵀ + b) W2ᵀ + b2: x (..., D), W (I, D), b (I), W2 (F, I), b2 (F) -> (..., F)."""
    return dispatch.run(FEED_FORWARD, FeedForwardCall(x, weight, bias, second, second_bias))


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
