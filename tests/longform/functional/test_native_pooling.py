"""Means and weighted sums of runs by Triton's kernel, and means of bfloat16."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longform.functional.slots import divisors, make_runs, mean_pool, pool_by_triton, pool_heads
from strategies import generator, normal, seeds
from tolerances import assert_close


@pytest.mark.parametrize("exact", [(), (0, 1, 2, 9)])
@pytest.mark.parametrize("length", [20, 23])
def test_means_of_bfloat16(length, exact):
    mask = torch.arange(length) < torch.tensor([[length], [length - 2]])
    x = torch.where(mask[..., None], normal(generator(1), 2, length, 64, dtype=torch.bfloat16), 0.0)
    counted = mask.clone()
    counted[:, list(exact)] = False
    slots = make_runs(mask, counted, batch=2, length=length, device=x.device, sizes=divisors(4), slots=6)
    assert slots.uniform == 4
    [expected] = mean_pool(torch.where(counted[..., None], x, 0.0).float(), runs=slots, limit=6)
    assert_close(mean_pool(x, runs=slots, limit=6, counted=counted)[0], expected)


@given(
    seeds,
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(0, 3),
    st.sampled_from([(8, 1), (8, 4), (200, 5)]),
)
@settings(max_examples=10)
def test_sums_of_runs_by_triton(seed, length, size, sinks, widths):
    """Means, and sums with a weight for each head, of a view with a gap behind each token."""
    features, heads = widths
    source = generator(seed)
    mask = torch.arange(length) < torch.tensor([[length], [max(1, length - 5)]])
    whole = torch.where(mask[..., None], normal(source, 2, length, features + 8, dtype=torch.float32), 0.0)
    x, weights = whole[..., :features], normal(source, 2, length, 3 * heads, dtype=torch.float32)[..., heads:]
    runs = -(-length // size)
    counted = mask & (torch.arange(length) >= sinks)
    slots = make_runs(mask, counted, batch=2, length=length, device=x.device, sizes=(size,), slots=runs)
    [means] = mean_pool(x, runs=slots, limit=runs, counted=counted)
    by_head = x.unflatten(2, (heads, -1))
    sums = [y.flatten(2) for y in pool_heads(by_head, -by_head, weights, slots, limit=runs)]
    shares = zip((x, -x), weights.chunk(2, dim=2), strict=True)
    found = pool_by_triton(x, slots, counted), *(pool_by_triton(y, slots, own) for y, own in shares)
    for one, other in zip(found, (means, *sums), strict=True):
        assert_close(one, other, scope="model")
