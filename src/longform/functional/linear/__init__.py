"""x Wᵀ + b, with GELU or a residual where wanted, in one pass: by our own kernel, by oneDNN, or by torch.

A weight that was packed says by its layout whose it is: our kernel's where it has the machine's units and fits the
weight, else oneDNN's. Plain weights without gradients are oneDNN's.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from longform.functional.conditions import is_plain_inference
from longform.functional.linear.amx import is_tiled, native_linear, native_linear_fits, tiled
from longform.functional.linear.amx_training import linear_trains_natively, trained_linear
from longform.functional.linear.native_gelu import trained_gelu
from longform.functional.linear.onednn import onednn_linear, onednn_pack, supported_dtypes


def fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    with_gelu: bool = False,
    residual: Tensor | None = None,
    bias_times: Tensor | None = None,
) -> Tensor:
    """x (..., D) times weight (F, D) transposed, plus bias (F) -> (..., F).

    Then exact GELU ``with_gelu``, or plus ``residual`` (..., F). ``bias_times`` (...), without either: how many times
    each row adds the bias. A packed weight serves inference alone.
    """
    if bias is not None and bias_times is not None:
        assert not with_gelu
        assert residual is None
        if is_tiled(weight):
            return native_linear(x, weight, bias, bias_times=bias_times)
        if linear_trains_natively(x, weight, bias):
            return trained_linear(x, weight, bias, bias_times)
        bias, residual = None, (bias_times[..., None] * bias).to(x.dtype).expand(*x.shape[:-1], -1)
    if not (weight.is_mkldnn or is_tiled(weight) or _served(x, weight, bias, residual)):
        native = linear_trains_natively(x, weight, bias)
        out = (trained_linear if native else linear)(x, weight, bias)
        return trained_gelu(out) if with_gelu else out if residual is None else residual + out
    return kernel_linear(x, weight, bias, with_gelu=with_gelu, residual=residual)


def can_pack(weight: Tensor, *, own: bool = True) -> bool:
    """Whether a packed form of ``weight`` (F, D) makes products faster; our own kernel's counts where ``own``."""
    if own and native_linear_fits(weight):
        return True
    ready = weight.device.type == "cpu" and weight.numel() > 0 and torch.backends.mkldnn.enabled
    return bool(ready and weight.dtype in supported_dtypes())


def pack(weight: Tensor, *, own: bool = True) -> Tensor:
    """``weight`` (F, D) as our kernel reads it, or oneDNN (also where not ``own``): for ``kernel_linear`` alone."""
    with torch.inference_mode(mode=False), torch.no_grad():
        if own and native_linear_fits(weight):
            return tiled(weight.detach())
        return onednn_pack(weight)


def kernel_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, with_gelu: bool = False, residual: Tensor | None = None
) -> Tensor:
    """One kernel's call, without gradients: x (..., D) and a weight (F, D) of its dtype, packed or plain -> (..., F).

    Exact GELU of it ``with_gelu``, or with ``residual`` (..., F) added. Our own kernel for what ``pack`` laid out for
    it, else oneDNN.
    """
    if residual is not None and residual.dtype != x.dtype:
        return residual + kernel_linear(x, weight, bias)
    if is_tiled(weight):
        return native_linear(x, weight, bias, with_gelu=with_gelu, residual=residual)
    return onednn_linear(x, weight, bias, with_gelu=with_gelu, residual=residual)


def _served(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> bool:
    """Whether oneDNN can be called."""
    if torch.is_autocast_enabled("cpu") or not is_plain_inference(x, weight, bias, residual):
        return False
    return bool(x.dtype in supported_dtypes() and x.numel() > 0 and torch.backends.mkldnn.enabled)
