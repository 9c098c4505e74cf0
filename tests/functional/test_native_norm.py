"""Layer normalisation by the compiled kernel: against float64, and who is served."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

from longform.functional import norm as native_norm
from longform.functional.norm import native_layer_norm, native_norm_serves
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16
UNITS = sorted({False, native_norm.rounds_by_itself()})


def given_rows(seed: int, rows: int, features: int):
    source = generator(seed)
    return [normal(source, *shape, dtype=HALF) for shape in ((2, rows, features), (features,), (features,))]


@pytest.mark.parametrize("units", UNITS)
@given(seeds, st.integers(1, 9), st.sampled_from([64, 192, 4096]), st.sampled_from([1e-12, 1e-5, 0.5]), st.booleans())
def test_equals_float64(units, seed, rows, features, epsilon, in_place):
    x, weight, bias = given_rows(seed, rows, features)
    x = x * 3 + 5
    expected = layer_norm(x.double(), (features,), weight.double(), bias.double(), epsilon)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_norm, "rounds_by_itself", lambda: units)
        out = native_layer_norm(x, weight, bias, epsilon=epsilon, in_place=in_place)
    assert (out.data_ptr() == x.data_ptr()) == in_place
    assert_close(out, expected)


@pytest.mark.parametrize("units", UNITS)
def test_nan_stays_in_its_row(units, monkeypatch):
    monkeypatch.setattr(native_norm, "rounds_by_itself", lambda: units)
    x, weight, bias = given_rows(1, 5, 64)
    clean = native_layer_norm(x, weight, bias, epsilon=1e-5)
    x[1, 3, 7], x[0, 2, 0] = math.nan, math.inf
    out = native_layer_norm(x, weight, bias, epsilon=1e-5)
    assert out[1, 3].isnan().all()
    assert out[0, 2].isnan().all()
    untouched = torch.ones(2, 5, dtype=torch.bool)
    untouched[1, 3] = untouched[0, 2] = False
    assert torch.equal(out[untouched], clean[untouched])


def test_equal_rows_become_the_bias():
    x, weight, bias = torch.full((1, 2, 64), 3.0, dtype=HALF), *given_rows(2, 1, 64)[1:]
    assert torch.equal(native_layer_norm(x, weight, bias, epsilon=1e-5), bias.expand(1, 2, 64))


def test_who_is_served(monkeypatch):
    monkeypatch.setattr(native_norm, "native_library", lambda: "given")
    x, weight, bias = given_rows(1, 2, 64)
    assert native_norm_serves(x, weight, bias)
    assert not native_norm_serves(x, None, None)
    assert not native_norm_serves(x.float(), weight, bias)
    assert not native_norm_serves(x, weight.float(), bias.float())
    assert not native_norm_serves(x.mT.contiguous().mT, weight, bias)
    assert not native_norm_serves(x[..., :32].contiguous(), weight[:32], bias[:32])
    assert not native_norm_serves(x, weight.clone().requires_grad_(), bias)
    with torch.no_grad():
        assert native_norm_serves(x, weight.clone().requires_grad_(), bias)
    monkeypatch.setattr(native_norm, "native_library", lambda: None)
    assert not native_norm_serves(x, weight, bias)
