"""Means of runs by the compiled kernel: against the mean in float64, and who is served."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine

from longform.functional.slots import (
    Slots,
    divisors,
    make_slots,
    mean_by_library,
    mean_pool,
    pool_by_triton,
    suits_library,
    weighted_pool,
)
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16


def native_mean_of_runs(x, count, *, size, sinks):
    return mean_by_library(x, Slots(count, torch.full((len(x),), size), size, size), sinks=sinks)


@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 90),
    features=st.sampled_from([64, 128, 320]),
    size=st.integers(1, 9),
    sinks=st.integers(0, 5),
    seed=seeds,
)
def test_equals_the_mean_in_float64(batch, length, features, size, sinks, seed):
    x = normal(generator(seed), batch, length, features, dtype=HALF)
    count = torch.arange(-(-length // size) * batch).view(batch, -1).float()
    out = native_mean_of_runs(x, count, size=size, sinks=sinks)
    rows = torch.cat([torch.zeros(batch, min(sinks, length), features), x.float()[:, sinks:]], dim=1).double()
    for s in range(count.shape[1]):
        total = rows[:, s * size : (s + 1) * size].sum(dim=1)
        assert_close(out[:, s], total / count[:, s : s + 1].clamp(min=1.0).double())


@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("length", [20, 23])
def test_mean_pool_takes_it_and_equals_torch(length, sinks):
    mask = torch.arange(length) < torch.tensor([[length], [length - 2]])
    x = torch.where(mask[..., None], normal(generator(1), 2, length, 64, dtype=HALF), 0.0)
    slots = make_slots(mask, batch=2, length=length, device=x.device, sizes=divisors(4), slots=6, sinks=sinks)
    assert slots.uniform == 4
    [expected] = mean_pool(x.float(), slots=slots, limit=6, sinks=sinks)
    with torch.no_grad():
        found = mean_pool(x, slots=slots, limit=6, sinks=sinks)[0]
    assert_close(found, expected)
    assert torch.equal(found, mean_by_library(x, slots, sinks=sinks))


def test_nan_and_infinity_stay_in_their_run():
    x = torch.ones(1, 12, 64, dtype=HALF)
    x[0, 4, 2], x[0, 8, 1] = math.nan, math.inf
    out = native_mean_of_runs(x, torch.full((1, 3), 4.0), size=4, sinks=0)
    assert out[0, 1].isnan().nonzero().tolist() == [[2]]
    assert out[0, 2].isinf().nonzero().tolist() == [[1]]
    assert (out[0, 0] == 1.0).all()


def test_rows_of_any_stride():
    x = normal(generator(2), 2, 12, 130, dtype=HALF)[:, ::2, :64]
    assert_close(native_mean_of_runs(x, torch.full((2, 2), 3.0), size=3, sinks=0), x.unflatten(1, (2, 3)).mean(dim=2))


def test_who_is_served():
    x = torch.ones(1, 64, 64, dtype=HALF)
    with machine():
        assert suits_library(x)
        assert not suits_library(x.float())
        assert not suits_library(x, x[..., :63])
    with machine(has_library=False):
        assert not suits_library(x)


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
    slots = make_slots(mask, batch=2, length=length, device=x.device, sizes=(size,), slots=runs, sinks=sinks)
    [means] = mean_pool(x, slots=slots, limit=runs, sinks=sinks)
    sums = weighted_pool(x, -x, weights=weights, slots=slots, limit=runs)
    shares = zip((x, -x), weights.chunk(2, dim=2), strict=True)
    found = pool_by_triton(x, slots, sinks=sinks), *(pool_by_triton(y, slots, own) for y, own in shares)
    for one, other in zip(found, (means, *sums), strict=True):
        assert_close(one, other, scope="model")
