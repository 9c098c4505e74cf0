"""Triton's program of a layer normalisation: rows of a sum, read once.

Imported late, by norm.py: whether ``triton.jit`` compiles or interprets is decided when this file is read.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def normalise(
    x,
    residual,
    weight,
    bias,
    out,
    rows,
    epsilon,
    FEATURES: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """``out`` (rows, F) of contiguous x and ``residual`` or None, (rows, F); ``weight``, ``bias`` (F) or None.

    ``WIDE``: F's next power of two; ``ROWS`` of a program.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDE)[None, :]
    place = row * FEATURES + column
    feature = column < FEATURES
    inside = feature & (row < rows)
    values = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        values += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, 1) / FEATURES
    centred = tl.where(feature, values - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, 1) / FEATURES
    normal = centred * tl.rsqrt(variance + epsilon)[:, None]
    if weight is not None:
        normal = normal * tl.load(weight + column, mask=feature, other=0.0).to(tl.float32)
    if bias is not None:
        normal = normal + tl.load(bias + column, mask=feature, other=0.0).to(tl.float32)
    tl.store(out + place, normal.to(out.dtype.element_ty), mask=inside)
