"""Which tiles of queries meet which tiles of keys in a window: FlexAttention's block lists, made in O(n).

A tile is T consecutive tokens, the unit in which a GPU kernel skips work; a block is the w tokens of the window. Tiles
and blocks need not divide each other. A query sees the valid keys of its own block and of both neighbours, so tile i
meets a few tiles around it and no others; of those some are seen whole, by every query and with no padding, and need
no look at single keys. torch's create_block_mask finds the same by looking at all pairs of tokens.

Axes: B batch (1 where nothing is padded), n tokens, t = ceil(n / T) tiles, m = 2 r + 1 tiles around one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

TILE = 128
NOWHERE = -2


class Tiles(NamedTuple):
    """For each tile of queries the tiles of keys that it meets, and for each tile of keys those of queries.

    Counts are int32 (B, 1, t); indices int32 (B, 1, t, m), of which the first ``count`` are meant. ``partial`` tiles
    need the mask of single tokens, ``full`` ones do not.
    """

    partial_count: Tensor
    partial: Tensor
    full_count: Tensor
    full: Tensor
    partial_queries_count: Tensor
    partial_queries: Tensor
    full_queries_count: Tensor
    full_queries: Tensor


def tile_count(length: int, tile: int) -> int:
    """Tiles that hold ``length`` tokens; a compiled graph adds empty ones, never to have one."""
    return length // tile + 2 if torch.compiler.is_compiling() else -(-length // tile)


def token_blocks(length: int, *, window: int, device: torch.device) -> Tensor:
    """The block of each token, int32 (n,)."""
    return torch.arange(length, device=device, dtype=torch.int32) // window


def near_tiles(mask: Tensor | None, *, length: int, window: int, device: torch.device, tile: int = TILE) -> Tiles:
    """The tiles of a text of ``length`` tokens; ``mask`` bool (B, n), or None where nothing is padded."""
    tiles = tile_count(length, tile)
    own = torch.arange(tiles, device=device)[:, None]
    radius = (2 * window - 2) // tile + 1
    around = own + torch.arange(-radius, radius + 1, device=device)
    inside = (around >= 0) & (around < tiles)
    other = around.clamp(0, tiles - 1)
    first = own[:, 0] * tile // window
    last = (own[:, 0] * tile + tile - 1).clamp(max=length - 1) // window
    meet = inside & (first[other] <= last[:, None] + 1) & (first[:, None] <= last[other] + 1)
    whole = (last[other] - first[:, None] <= 1) & (last[:, None] - first[other] <= 1)
    some_text, all_text = _tile_text(mask, length=length, tiles=tiles, tile=tile, device=device)
    meet = meet & some_text[:, :, None] & some_text[:, other]
    full, full_queries = meet & whole & all_text[:, other], meet & whole & all_text[:, :, None]
    lists = (_listed(kind, other) for kind in (meet & ~full, full, meet & ~full_queries, full_queries))
    return Tiles(*(part for pair in lists for part in pair))


def _tile_text(
    mask: Tensor | None, *, length: int, tiles: int, tile: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Whether a tile holds some text, and whether it holds nothing else: bool (B, t), gathered rather than padded."""
    positions = torch.arange(tiles, device=device)[:, None] * tile + torch.arange(tile, device=device)
    valid = (positions < length)[None]
    if mask is not None:
        valid = valid & mask[:, positions.clamp(max=length - 1)]
    return valid.any(dim=-1), valid.all(dim=-1)


def _listed(kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Tiles ``other`` (t, m) where ``kind`` (B, t, m), first in their rows: counts (B, 1, t), indices (B, 1, t, m)."""
    order = kind.to(torch.int32).argsort(dim=-1, descending=True, stable=True)
    indices = other.expand_as(kind).gather(-1, order).to(torch.int32)
    return kind.sum(dim=-1, dtype=torch.int32)[:, None], indices[:, None]
