"""Means of runs by the compiled kernel: against the mean in float64, and who is served."""

import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longform.functional import slot_means as native_pooling
from longform.functional import slots as projection
from longform.functional.slot_means import native_mean_of_runs, native_mean_serves
from longform.functional.slots import divisors, make_slots, mean_pool
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16


@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 90),
    features=st.sampled_from([1, 7, 33, 260]),
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
    x = torch.where(mask[..., None], normal(generator(1), 2, length, 6, dtype=HALF), 0.0)
    slots = make_slots(mask, batch=2, length=length, device=x.device, sizes=divisors(4), slots=6, sinks=sinks)
    assert slots.uniform == 4
    with patch.object(projection, "native_mean_serves", lambda _: False):
        expected = mean_pool(x, slots, limit=6, sinks=sinks)
    with patch.object(projection, "native_mean_of_runs", wraps=native_mean_of_runs) as kernel:
        assert_close(mean_pool(x, slots, limit=6, sinks=sinks), expected)
    assert kernel.called == native_mean_serves(x)


def test_nan_and_infinity_stay_in_their_run():
    x = torch.ones(1, 12, 5, dtype=HALF)
    x[0, 4, 2], x[0, 8, 1] = math.nan, math.inf
    out = native_mean_of_runs(x, torch.full((1, 3), 4.0), size=4, sinks=0)
    assert out[0, 1].isnan().tolist() == [False, False, True, False, False]
    assert out[0, 2].isinf().tolist() == [False, True, False, False, False]
    assert (out[0, 0] == 1.0).all()


def test_rows_of_any_stride():
    x = normal(generator(2), 2, 12, 10, dtype=HALF)[:, ::2, :5]
    assert_close(native_mean_of_runs(x, torch.full((2, 2), 3.0), size=3, sinks=0), x.unflatten(1, (2, 3)).mean(dim=2))


def test_who_is_served(monkeypatch):
    x = torch.ones(1, 4, 3, dtype=HALF)
    assert native_mean_serves(x) == (native_pooling.native_library() is not None)
    assert not native_mean_serves(x.float())
    assert not native_mean_serves(x.mT)
    assert not native_mean_serves(x.clone().requires_grad_())
    monkeypatch.setattr(native_pooling, "native_library", lambda: None)
    assert not native_mean_serves(x)
