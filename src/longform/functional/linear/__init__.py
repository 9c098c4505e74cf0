"""x Wᵀ + b in inference on a CPU, with packed weights, and with a GELU in the product's pass.

The layout of a packed weight (``pack``) says whose it is, our own kernel's or oneDNN's.

Axes: D inputs, F outputs.
"""

import torch
from torch import Tensor
from torch.nn import functional

from longform.functional.execution import has_values
from longform.functional.linear import amx, onednn


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., D) times weight (F, D), plain or packed, transposed, plus bias (F): (..., F)."""
    if amx.is_tiled(weight):
        return amx.infer(x, weight, bias)
    if weight.is_mkldnn:
        return onednn.infer(x, weight, bias)
    return functional.linear(x, weight, bias)


def linear_with_gelu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Exact GELU of x (..., D) times weight (F, D) transposed, plus bias (F): (..., F).

    On a GPU in half precision and without gradients cuBLAS computes it before it rounds the product, by a tanh. That is
    nearer to the exact GELU than an exact one of a rounded product: 1.7e-3 and 2.6e-3 away in bfloat16, of normal
    numbers.
    """
    fuses = x.is_cuda and x.numel() > 0 and not torch.is_grad_enabled()
    half = x.dtype in (torch.bfloat16, torch.float16) and weight.dtype == x.dtype
    if fuses and half and bias is not None and bias.dtype == x.dtype and has_values():
        rows = x.reshape(-1, x.shape[-1])
        return torch._addmm_activation(bias, rows, weight.mT, use_gelu=True).view(*x.shape[:-1], -1)
    return functional.gelu(functional.linear(x, weight, bias))


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
