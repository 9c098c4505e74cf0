"""Layer normalisation by the compiled kernel, and of a sum by Triton's: against float64, and who is served."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_tables import machine
from torch.nn.functional import layer_norm

from longform.functional.norm import layer_norm as longform_norm
from longform.functional.norm import norm_by_library, norm_by_triton, suits_library
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16


def given_rows(seed: int, rows: int, features: int):
    source = generator(seed)
    return [normal(source, *shape, dtype=HALF) for shape in ((2, rows, features), (features,), (features,))]


@given(seeds, st.integers(1, 9), st.sampled_from([64, 192, 4096]), st.sampled_from([1e-12, 1e-5, 0.5]), st.booleans())
def test_equals_float64(seed, rows, features, epsilon, in_place):
    x, weight, bias = given_rows(seed, rows, features)
    x = x * 3 + 5
    expected = layer_norm(x.double(), (features,), weight.double(), bias.double(), epsilon)
    out = norm_by_library(x, weight, bias, epsilon=epsilon, in_place=in_place)
    assert (out.data_ptr() == x.data_ptr()) == in_place
    assert_close(out, expected)


@given(
    seeds,
    st.integers(1, 3),
    st.sampled_from([1, 48, 64, 768, 1000]),
    st.sampled_from([(True, True), (True, False), (False, False)]),
)
def test_a_sum_by_triton(seed, rows, features, affine):
    source, dtype = generator(seed), torch.float32
    x, residual = (normal(source, 2, rows, features, dtype=dtype) * 3 + 5 for _ in range(2))
    weight, bias = (normal(source, features, dtype=dtype) if given else None for given in affine)
    wide = (None if given is None else given.double() for given in (weight, bias))
    expected = layer_norm(x.double() + residual.double(), (features,), *wide, 1e-5)
    out = norm_by_triton(x, weight, bias, epsilon=1e-5, residual=residual)
    assert_close(out, expected, scope="model")


@pytest.mark.parametrize("norm", [norm_by_library, longform_norm])
def test_a_sum(norm):
    x, weight, bias = given_rows(3, 5, 64)
    residual = normal(generator(4), *x.shape, dtype=HALF)
    expected = layer_norm(x.double() + residual.double(), (64,), weight.double(), bias.double(), 1e-5)
    kept = x.clone(), residual.clone()
    out = norm(x, weight, bias, epsilon=1e-5, residual=residual)
    assert_close(out, expected, scope="model")
    assert torch.equal(x, kept[0])
    assert torch.equal(residual, kept[1])


def test_nan_stays_in_its_row():
    x, weight, bias = given_rows(1, 5, 64)
    clean = norm_by_library(x, weight, bias, epsilon=1e-5)
    x[1, 3, 7], x[0, 2, 0] = math.nan, math.inf
    out = norm_by_library(x, weight, bias, epsilon=1e-5)
    assert out[1, 3].isnan().all()
    assert out[0, 2].isnan().all()
    untouched = torch.ones(2, 5, dtype=torch.bool)
    untouched[1, 3] = untouched[0, 2] = False
    assert torch.equal(out[untouched], clean[untouched])


def test_equal_rows_become_the_bias():
    x, weight, bias = torch.full((1, 2, 64), 3.0, dtype=HALF), *given_rows(2, 1, 64)[1:]
    assert torch.equal(norm_by_library(x, weight, bias, epsilon=1e-5), bias.expand(1, 2, 64))


def test_who_is_served():
    x, weight, bias = given_rows(1, 2, 64)

    with machine():
        assert suits_library(x, weight, bias)
        assert not suits_library(x.float(), weight, bias)
        assert not suits_library(x, weight.float(), bias.float())
        assert not suits_library(x.mT.contiguous().mT, weight, bias)
        assert not suits_library(x[..., :32].contiguous(), weight[:32], bias[:32])
    with machine(has_library=False):
        assert not suits_library(x, weight, bias)


def test_a_gradient_is_torchs():
    x, weight, bias = given_rows(1, 2, 64)
    weight = weight.requires_grad_()
    assert longform_norm(x, weight, bias, epsilon=1e-5).requires_grad
    with torch.no_grad():
        assert torch.equal(longform_norm(x, weight, bias, epsilon=1e-5), norm_by_library(x, weight, bias, epsilon=1e-5))
