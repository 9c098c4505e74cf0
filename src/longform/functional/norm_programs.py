"""Triton kernel that normalises rows of a sum, read once.

Imported late, by norm.py: whether ``triton.jit`` compiles or interprets is decided when this file is read.
"""

import triton
import triton.language as tl


@triton.jit
def normalise(x, residual, weight, bias, out, epsilon, FEATURES: tl.constexpr, WIDE: tl.constexpr):
    """A row of ``out``, of contiguous x and ``residual`` or None: all (rows, F); ``weight``, ``bias`` (F) or None.

    ``WIDE``: F's next power of two.
    """
    column = tl.arange(0, WIDE)
    place = tl.program_id(0).to(tl.int64) * FEATURES + column
    inside = column < FEATURES
    row = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        row += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, row - tl.sum(row) / FEATURES, 0.0)
    normal = centred * tl.rsqrt(tl.sum(centred * centred) / FEATURES + epsilon)
    if weight is not None:
        normal *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if bias is not None:
        normal += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, normal.to(out.dtype.element_ty), mask=inside)
