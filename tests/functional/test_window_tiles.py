"""The block lists made in O(n) are those that torch finds by looking at all pairs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask

from longform.functional.window.flex import near_tiles
from strategies import texts

CASES = (texts(lengths=st.integers(1, 90), batch=3), st.sampled_from([1, 3, 4, 8, 12, 16, 64]), st.sampled_from([4, 8]))


def dense(count: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Counts (B, 1, t) and indices (B, 1, t, m) as bool (B, t, t); no index twice."""
    batch, _, tiles, _ = indices.shape
    found = torch.zeros(batch, tiles, tiles, dtype=torch.bool)
    for b, _, i in torch.cartesian_prod(torch.arange(batch), torch.arange(1), torch.arange(tiles)).tolist():
        meant = indices[b, 0, i, : count[b, 0, i]].long()
        assert len(set(meant.tolist())) == len(meant)
        found[b, i, meant] = True
    return found


def visible(valid: torch.Tensor, window: int) -> torch.Tensor:
    """Which valid query sees which valid key: bool (B, n, n)."""
    blocks = torch.arange(valid.shape[1]) // window
    return ((blocks[:, None] - blocks).abs() <= 1) & valid[:, None, :] & valid[:, :, None]


@settings(max_examples=80)
@given(*CASES)
def test_tiles_hold_every_pair_and_full_ones_nothing_else(text, window, tile):
    length, mask = text.length, text.checked
    made = near_tiles(mask, length=length, window=window, device=torch.device("cpu"), tile=tile)
    assert all(part.dtype == torch.int32 and part.is_contiguous() for part in made)
    partial, full, partial_queries, full_queries = (dense(*made[at : at + 2]) for at in (0, 2, 4, 6))
    tiles = -(-length // tile)
    assert partial.shape == (1 if mask is None else text.batch, tiles, tiles)
    assert not (partial & full).any()
    assert not (partial_queries & full_queries).any()
    pairs = torch.zeros(text.batch, tiles * tile, tiles * tile, dtype=torch.bool)
    pairs[:, :length, :length] = visible(text.valid, window)
    some = pairs.unflatten(2, (tiles, tile)).unflatten(1, (tiles, tile)).any(dim=4).any(dim=2)
    met = (partial | full).expand_as(some)
    assert not (some & ~met).any()
    assert torch.equal(met.transpose(1, 2), (partial_queries | full_queries).expand_as(met))
    keys = torch.zeros_like(pairs)
    keys[:, :, :length] = text.valid[:, None]
    blocks = torch.arange(tiles * tile).clamp(max=length - 1) // window
    whole = ((blocks[:, None] - blocks).abs() <= 1) & keys
    whole = whole.unflatten(2, (tiles, tile)).unflatten(1, (tiles, tile)).all(dim=4).all(dim=2)
    assert torch.equal(full.expand_as(whole), whole & met)
    assert torch.equal(full_queries.transpose(1, 2), full)


@pytest.mark.parametrize("window", [4, 16, 24, 64, 300])
@pytest.mark.parametrize("length", [5, 64, 250])
def test_as_torch_finds_them(window, length):
    def seen(b, h, q, k):
        return (q // window - k // window).abs() <= 1

    expected = create_block_mask(seen, None, None, length, length, device="cpu", BLOCK_SIZE=16)
    made = near_tiles(None, length=length, window=window, device=torch.device("cpu"), tile=16)
    assert torch.equal(dense(*made[:2]) | dense(*made[2:4]), expected.to_dense()[0].bool())


def test_they_grow_linearly():
    tiles = [near_tiles(None, length=n, window=256, device=torch.device("cpu")) for n in (2**14, 2**17)]
    small, large = (sum(part.numel() for part in made) for made in tiles)
    assert large == 8 * small
