"""Local attention: each token sees the tokens near it exactly and no others, in time and memory O(n).

The sequence is cut into blocks as long as the reach, and each block looks at itself and at both neighbours, in which
the tokens that are too far away are hidden.

Axes: B batch, n tokens, h heads, d head dimension, w block, b blocks.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from longform.functional.attention import attend_fused
from longform.functional.attention.formula import AttentionCall
from longform.functional.window.formula import HIDDEN, block_positions, neighbour_positions

BLOCKS = 64  # at a time: each token's key and value are in three blocks


def local_attention(
    query: Tensor, key: Tensor, value: Tensor, *, reach: int, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """query, key, value (B, n, h, d), key and value blanked on padding -> (B, n, h, d), anything on padding.

    A token sees those at most ``reach`` >= 1 tokens away that ``mask``, bool (B, n) or None, does not hide.
    """
    batch, length = query.shape[:2]
    positions = _positions(length, reach, query.device)
    # A compiled graph takes all at once: their number must not tie it to some lengths.
    of_blocks = [[x] if torch.compiler.is_compiling() else x.split(BLOCKS) for x in positions]
    parts = []
    for own, around in zip(*of_blocks, strict=True):
        blocks, keys, values = (_gather(x, at) for x, at in ((query, own), (key, around), (value, around)))
        seen = _seen(own, around, reach, length, mask).expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
        out = attend_fused(AttentionCall(blocks, keys, values, seen, dropout=dropout))
        parts.append(out.transpose(1, 2).unflatten(0, (batch, own.shape[0])).flatten(1, 2))
    return _first(torch.cat(parts, dim=1), length, axis=1)


def local_weights(query: Tensor, key: Tensor, *, reach: int, mask: Tensor | None = None) -> Tensor:
    """Weights of ``local_attention``, (B, h, n, 3 w): over a query's block and both neighbours, w = ``reach``."""
    batch, length = query.shape[:2]
    own, around = _positions(length, reach, query.device)
    logits = _gather(query, own) * query.shape[-1] ** -0.5 @ _gather(key, around).transpose(-1, -2)
    seen = _seen(own, around, reach, length, mask).expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
    weights = logits.masked_fill(~seen, HIDDEN).softmax(dim=-1)
    rows = weights.unflatten(0, (batch, own.shape[0])).transpose(1, 2).flatten(2, 3)
    return _first(rows, length, axis=2)


def local_context(weights: Tensor, value: Tensor, *, reach: int, dropout: float = 0.0) -> Tensor:
    """The context of ``local_weights`` (B, h, n, 3 w), some of them dropped, in value (B, n, h, d): (B, n, h, d)."""
    batch, length = value.shape[:2]
    own, around = _positions(length, reach, value.device)
    rows = _gather(drop(weights, dropout).transpose(1, 2), own)
    out = rows.to(value.dtype) @ _gather(value, around)
    return _first(out.transpose(1, 2).unflatten(0, (batch, own.shape[0])).flatten(1, 2), length, axis=1)


def _first(x: Tensor, length: int, *, axis: int) -> Tensor:
    """The first ``length`` places of ``axis``; selected rather than sliced, which would tie a graph to some lengths."""
    return x.index_select(axis, torch.arange(length, device=x.device))


def _positions(length: int, reach: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions of each block's queries (b, w), those past the end as the last, and of what it looks at (b, 3 w)."""
    own = block_positions(length, reach, device).clamp(max=length - 1)
    return own, neighbour_positions(length, reach, device)


def _gather(x: Tensor, positions: Tensor) -> Tensor:
    """x (B, n, h, d) at ``positions`` (b, m), the nearest where there is no such token: (B b, h, m, d)."""
    return x[:, positions.clamp(0, x.shape[1] - 1)].flatten(0, 1).transpose(1, 2)


def _seen(own: Tensor, around: Tensor, reach: int, length: int, mask: Tensor | None) -> Tensor:
    """Bool (B or 1, b, w, 3 w): near and text; a token with none of these sees itself, so that no row is empty."""
    apart = (around[:, None, :] - own[:, :, None]).abs()
    near = (apart <= reach) & ((around >= 0) & (around < length))[:, None, :]
    if mask is None:
        return near[None]
    seen = near & mask[:, around.clamp(0, length - 1)][:, :, None, :]
    return seen | (~seen.any(dim=-1, keepdim=True) & (apart == 0))
