"""Triton kernel that pools slots: sums or means of runs of tokens, which are read once.

Imported late, by slots.py: whether ``triton.jit`` compiles or interprets is decided when this file is read.
"""

# Arguments stand in groups.
# fmt: off

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["length", "runs", "size"])
def pool(
    x, weights, count, out, x_batch, x_token, weights_batch, weights_token,
    length, runs, size, FEATURES: tl.constexpr, HEAD: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr,
):
    """A block of features of one slot: ``out`` (B, S, F) of x (B, n, F), features side by side in both.

    ``weights`` (B, n, h), heads side by side, of ``HEAD`` features each, or None; ``count`` float32 (B, S) to divide
    by, or None. ``TOKENS`` of a run are read at a time.
    """
    b, run = (tl.program_id(0) // runs).to(tl.int64), tl.program_id(0) % runs
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    feature = column < FEATURES
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, size, TOKENS):
        place = begin + tl.arange(0, TOKENS)[:, None]
        token = run * size + place
        inside = feature & (place < size) & (token < length)
        rows = tl.load(x + b * x_batch + token.to(tl.int64) * x_token + column, mask=inside, other=0.0).to(tl.float32)
        if weights is not None:
            own = weights + b * weights_batch + token.to(tl.int64) * weights_token + column // HEAD
            rows = rows * tl.load(own, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(rows, 0)
    if count is not None:
        total = total / tl.maximum(tl.load(count + tl.program_id(0)), 1.0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = out + tl.program_id(0).to(tl.int64) * FEATURES + at
    tl.store(place, total.to(out.dtype.element_ty), mask=at < FEATURES)
