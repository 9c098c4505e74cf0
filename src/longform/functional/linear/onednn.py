"""x Wᵀ + b, with GELU or a residual where wanted, as one oneDNN call.

torch adds the bias, GELU and a residual in passes of their own over the product, and sends float32 products to MKL. For
a forward pass without gradients one oneDNN call does it all while the tile is in the cache: on AVX512-bf16 the wide
half of a feed-forward part (2,048 x 768 x 3,072, GELU) takes 51 ms instead of 66 in bfloat16, and 5/6 in float32.
GELU is the exact one (erf), applied to the float32 sums; a residual is added to them before they are rounded.

oneDNN lays a plain weight out anew in every call, unless it was packed (``onednn_pack``; docs/costs.md has the times).

On two cores with AMX it gives some products of middling size to one core alone: 1,024 x 3,072 x 768 took 5.3 ms as one
call, 3.0 ms as four of 256 rows, and 5.0 ms with twice the rows. Such products are cut (``rows_at_a_time``).
"""

from functools import cache

import torch
from torch import Tensor

from longform.functional.hardware import has_amx

PACKED_FOR = 512  # rows of the input, which oneDNN asks for; the layout was as fast at 64 and at 2,048
# Measured with torch 2.13 on two cores with AMX: bfloat16 products of so many rows and outputs, and at least as many
# inputs as outputs, were no faster on both than on one; of as many rows as a piece has, they were.
ONE_CORE_ROWS, ONE_CORE_OUTPUTS, PIECE = range(448, 1409), range(448, 897), 320


def onednn_pack(weight: Tensor) -> Tensor:
    """``weight`` (F, D) in oneDNN's layout: an opaque tensor, for ``onednn_linear`` alone."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().clone(), PACKED_FOR)


def onednn_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, with_gelu: bool = False, residual: Tensor | None = None
) -> Tensor:
    """The call, without gradients: x (..., D) and a weight (F, D) of its dtype, packed or plain -> (..., F).

    Exact GELU of it ``with_gelu``, or with ``residual`` (..., F) of x's dtype added.
    """
    whole = None if bias is None else bias.contiguous()  # oneDNN reads it without its strides
    inputs, outputs = x.shape[-1], weight.shape[0]
    rows = x.numel() // inputs
    step = rows_at_a_time(rows, inputs, outputs) if x.dtype == torch.bfloat16 else rows
    if step == rows:
        return _call(x, weight, whole, residual, with_gelu)
    out = x.new_empty(rows, outputs)
    given, added = x.reshape(rows, inputs), None if residual is None else residual.reshape(rows, outputs)
    for start in range(0, rows, step):
        some = slice(start, start + step)
        out[some] = _call(given[some], weight, whole, None if added is None else added[some], with_gelu)
    return out.view(*x.shape[:-1], outputs)


def _call(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, with_gelu: bool) -> Tensor:
    if residual is not None:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual.contiguous(), weight, bias, "add")
    attribute, algorithm = ("gelu", "none") if with_gelu else ("none", "")
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, attribute, [], algorithm)


def rows_at_a_time(rows: int, inputs: int, outputs: int) -> int:
    """Of a bfloat16 product (rows, inputs) x (inputs, outputs), as many rows as one call is best given."""
    on_one_core = rows in ONE_CORE_ROWS and outputs in ONE_CORE_OUTPUTS and inputs >= outputs
    if not (on_one_core and has_amx() and torch.get_num_threads() == 2):
        return rows
    pieces = -(-rows // PIECE)
    return -(-rows // pieces)


@cache
def supported_dtypes() -> tuple[torch.dtype, ...]:
    """What this machine's oneDNN multiplies faster than torch alone; nothing where torch was built without it."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return ()
    has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return (torch.float32, torch.bfloat16) if has_bf16 else (torch.float32,)
