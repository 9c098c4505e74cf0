"""Grids of tokens, such as pixels, patches or frames, in an order in which runs are tiles and blocks neighbourhoods.

Tokens of a tile come one after the other, tiles of a block too, so that what is made for a text (slots of runs, a
window in blocks) serves a grid of any rank; a block sees the blocks around it, also across corners. A grid that does
not divide is filled up with padding. Sinks (class tokens) stand in further blocks in front: every query sees them, and
they see every tile.

Axes: B batch, n tokens, m places in that order, b blocks, D hidden.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from longform.errors import ConfigurationError, InputError
from longform.functional.execution import kept
from longform.functional.window.formula import block_count
from longform.layers.self_attention import Shared


class Arrangement(NamedTuple):
    """Order of tokens: the token of each place, long (m,), and whether there is one, bool (m,); the place of each
    token, long (n,); the blocks that each block sees, long (b, 3^r), or None without a window.
    """

    there: Tensor
    holds: Tensor
    back: Tensor
    neighbours: Tensor | None

    def arranged(self, hidden: Tensor, mask: Tensor | None, shared: Shared) -> tuple[Tensor, Tensor, Shared]:
        """hidden (B, n, D) and bool mask (B, n) in places, (B, m, D) and (B, m); zeros where there is no token.

        ``shared`` comes with its rotation in places too.
        """
        hidden = torch.where(self.holds[:, None], hidden[:, self.there], 0.0)
        holds = self.holds.expand(len(hidden), -1)
        if shared.rotation is not None:
            shared = shared._replace(rotation=shared.rotation.at(self.there))
        return hidden, holds if mask is None else holds & mask[:, self.there], shared

    def restored(self, x: Tensor) -> Tensor:
        """x (B, h, m, .) of places as (B, h, n, .) of tokens."""
        return x[:, :, self.back]


@dataclass(frozen=True)
class Grid:
    """``tile``: tokens of a slot along each axis of a grid; ``block``: those of a block of the window, or None for no
    window; ``sinks``: tokens before the grid; ``size``: tokens along each axis, where an input does not say them.

    Raises ConfigurationError for tiles that do not fill a block.
    """

    tile: tuple[int, ...]
    block: tuple[int, ...] | None = None
    sinks: int = 0
    size: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, given in (("tile", self.tile), ("attention_window", self.block), ("grid", self.size)):
            axes = 0 if isinstance(given, int) else len(self.tile)
            if given is not None and (not axes or len(given) != axes or min(given) < 1):
                raise ConfigurationError(
                    f"{name}={given} must have a number from 1 on for each axis, as many as tile={self.tile}"
                )
        if self.block is not None and any(whole % part for whole, part in zip(self.block, self.tile, strict=True)):
            raise ConfigurationError(
                f"attention_window={self.block} must be a multiple of tile={self.tile} along each axis: tiles fill it"
            )

    @property
    def window(self) -> int | None:
        """Tokens of a block."""
        return None if self.block is None else math.prod(self.block)

    @property
    def run(self) -> int:
        """Tokens of a tile."""
        return math.prod(self.tile)

    def extents(self, shape: tuple[int, ...], given: tuple[int, ...] | None) -> tuple[int, ...]:
        """Tokens along each axis, of an input of ``shape`` (B, n, D) or (B, ..., D); ``given``: what the caller says.

        Raises InputError where they are not known or do not match.
        """
        if len(shape) == 2 + len(self.tile) and (len(shape) > 3 or not (given or self.size)):
            return self._of_axes(shape)
        found = given or self.size
        if len(shape) != 3 or found is None:
            axes = ", ".join(f"n{axis}" for axis in range(len(self.tile)))
            raise InputError(
                f"the input has shape {tuple(shape)}, expected (batch, {axes}, hidden_size) for tile={self.tile}, or "
                f"(batch, {self.sinks} + tokens of the grid, hidden_size) with grid=({axes}) in this call or the "
                "constructor"
            )
        if len(found) != len(self.tile) or shape[1] != self.sinks + math.prod(found):
            raise InputError(
                f"the input has n={shape[1]} tokens, grid={tuple(found)} with sink_tokens={self.sinks} has "
                f"{self.sinks + math.prod(found)}, in tiles of {self.tile}"
            )
        return tuple(found)

    def _of_axes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Tokens along each axis of an input that has them as axes."""
        if len(shape) == 3:
            return (shape[1] - self.sinks,)
        if self.sinks:
            raise InputError(
                f"an input of shape {tuple(shape)} has no place for sink_tokens={self.sinks}: give (batch, "
                "sink_tokens + tokens of the grid, hidden_size) and grid="
            )
        return tuple(shape[1:-1])


@kept
def arrangement(grid: Grid, extents: tuple[int, ...], device: torch.device) -> Arrangement:
    """Arrangement of a ``grid`` of ``extents``, on ``device``."""
    block, rank, tokens = grid.block or grid.tile, len(grid.tile), math.prod(extents)
    size = math.prod(block)
    front = -(-grid.sinks // size)  # blocks of sinks
    padding = [amount for whole, part in zip(extents, block, strict=True) for amount in (-whole % part, 0)][::-1]
    number = torch.arange(tokens, device=device).view(extents) + grid.sinks
    number = torch.nn.functional.pad(number, padding, value=-1)
    blocks = [whole // part for whole, part in zip(number.shape, block, strict=True)]
    parts = zip(blocks, (b // t for b, t in zip(block, grid.tile, strict=True)), grid.tile, strict=True)
    order = [axis * 3 + level for level in range(3) for axis in range(rank)]
    places = number.reshape([extent for axis in parts for extent in axis]).permute(order).flatten()
    first = torch.arange(front * size, device=device)
    places = torch.cat([torch.where(first < grid.sinks, first, -1), places])
    holds = places >= 0
    back = places.where(holds, len(places)).argsort()[: grid.sinks + tokens]
    around = None if grid.block is None else _neighbours(blocks, front, block_count(len(places), size)).to(device)
    return Arrangement(places.clamp(min=0), holds, back, around)


def _neighbours(blocks: list[int], front: int, rows: int) -> Tensor:
    """The blocks around each of a grid of ``blocks``, after ``front`` ones that see each other: (``rows``, 3^r)."""
    table = torch.full((rows, max(3 ** len(blocks), front)), -1)
    table[:front, :front] = torch.arange(front)
    numbers = torch.arange(math.prod(blocks)).view(blocks) + front
    padded = torch.nn.functional.pad(numbers, (1, 1) * len(blocks), value=-1)
    for column, offset in enumerate(product(range(3), repeat=len(blocks))):
        seen = padded[tuple(slice(start, start + extent) for start, extent in zip(offset, blocks, strict=True))]
        table[front : front + numbers.numel(), column] = seen.flatten()
    return table


def of_flat_grid(mask: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """The mask of a grid of ``shape`` (B, H, W, D), which is (B, H, W), as (B, H W); another mask stays."""
    return mask.flatten(1) if mask is not None and mask.shape == shape[:-1] else mask
