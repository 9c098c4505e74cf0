"""x Wᵀ + b, with GELU or a residual where wanted, as one oneDNN call.

torch adds the bias, GELU and a residual in further passes over the product, and sends float32 products to MKL. For a
forward pass without gradients one oneDNN call does it all while the tile is in the cache: on AVX512-bf16 the wide half
of a feed-forward part (2,048 x 768 x 3,072, GELU) takes 51 ms instead of 66 in bfloat16, and 5/6 in float32. GELU is
the exact one (erf), applied to the float32 sums; a residual is added to them before they are rounded.

oneDNN lays a plain weight out anew in every call, unless it was packed (``pack``; docs/lab/costs.md has the times).
"""

from functools import cache

import torch
from torch import Tensor

from longform.units import allows

PACKED_FOR = 512  # rows of the input, which oneDNN asks for; the layout was as fast at 64 and at 2,048


def pack(weight: Tensor) -> Tensor:
    """``weight`` (F, D) in oneDNN's layout: an opaque tensor, only for ``infer``."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().clone(), PACKED_FOR)


def infer(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, gelu: bool = False, residual: Tensor | None = None
) -> Tensor:
    """x (..., D) times a weight (F, D) of x's dtype, packed or plain, plus bias (F), then exact ``gelu`` or plus
    ``residual`` (..., F), without gradients: (..., F).
    """
    if residual is not None and residual.dtype != x.dtype:
        return residual + infer(x, weight, bias)
    whole = None if bias is None else bias.contiguous()  # oneDNN reads it without its strides
    if residual is not None:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual.contiguous(), weight, whole, "add")
    attribute, algorithm = ("gelu", "none") if gelu else ("none", "")
    return torch.ops.mkldnn._linear_pointwise(x, weight, whole, attribute, [], algorithm)


@cache
def supported_dtypes() -> tuple[torch.dtype, ...]:
    """Dtypes that this machine's oneDNN multiplies faster than torch does; none where torch was built without it."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return ()
    has_bf16 = allows("avx512") and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return (torch.float32, torch.bfloat16) if has_bf16 else (torch.float32,)
