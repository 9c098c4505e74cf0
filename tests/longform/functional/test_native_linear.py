"""The compiled linear layer by this machine's units and by loops, against float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine
from torch.nn.functional import gelu, linear

from longform.functional.linear import amx, onednn, pack
from longform.functional.linear.amx import is_tiled, tiled
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16
pytestmark = pytest.mark.usefixtures("units")


def given_layer(rows: int, inputs: int, outputs: int, seed: int = 0):
    source = generator(seed)
    x, weight = normal(source, rows, inputs, dtype=HALF), normal(source, outputs, inputs) / inputs**0.5
    return x, weight.to(HALF), normal(source, outputs, dtype=HALF), normal(source, rows, outputs, dtype=HALF)


def exact(x, weight, bias=None):
    return linear(x.double(), weight.double(), None if bias is None else bias.double())


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 32, 32), (31, 64, 96), (32, 416, 64), (33, 800, 160), (64, 384, 32), (300, 64, 288), (1100, 32, 64)],
)
def test_equals_float64(rows, inputs, outputs):
    x, weight, bias, residual = given_layer(rows, inputs, outputs)
    laid_out, expected = tiled(weight), exact(x, weight, bias)
    out = amx.infer(x, laid_out, bias)
    assert out.dtype == HALF
    assert_close(out, expected)
    assert_close(amx.infer(x, laid_out, None), exact(x, weight))
    assert_close(amx.infer(x, laid_out, bias, gelu=True), gelu(expected))
    assert_close(amx.infer(x, laid_out, bias, residual=residual), expected + residual.double())
    both = amx.infer(x, laid_out, bias, gelu=True, residual=residual)
    assert_close(both, gelu(expected) + residual.double())


@given(seeds, st.integers(1, 70), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=20)
def test_equals_float64_at_any_size(seed, rows, inputs, outputs):
    x, weight, bias, residual = given_layer(rows, 32 * inputs, 32 * outputs, seed)
    out = amx.infer(x, tiled(weight), bias, residual=residual)
    assert_close(out, exact(x, weight, bias) + residual.double())


def test_rows_may_stand_apart():
    wide, weight, bias, residual = given_layer(33, 96, 64)
    weight, laid_out = weight[:, :64], tiled(weight[:, :64])
    for x in (wide[:, 32:], wide[:, :64][::2], wide[:, :64].t().contiguous().t(), wide[:1, :64].expand(5, -1)):
        added = residual[: len(x)].t().contiguous().t()
        assert_close(amx.infer(x, laid_out, bias, residual=added), exact(x, weight, bias) + added.double())
    deep = wide[:32, :64].reshape(4, 8, 64)
    assert_close(amx.infer(deep.transpose(0, 1), laid_out, bias), exact(deep.transpose(0, 1), weight, bias))
    assert amx.infer(deep[:0], laid_out, bias).shape == (0, 8, 64)
    every_other = torch.stack([bias, bias], dim=1)[:, 0]
    assert_close(amx.infer(deep, laid_out, every_other), exact(deep, weight, bias))


def test_what_gelu_gives_is_kept_out_of_the_same_sets():
    x, weight, bias, _ = given_layer(5, 32, 1024)
    wide = amx.infer(x, tiled(weight), bias, gelu=True)
    assert wide.stride() == (1056, 1)
    assert_close(wide, gelu(exact(x, weight, bias)))
    _, narrow, shift, residual = given_layer(5, 1024, 32)
    assert_close(
        amx.infer(wide, tiled(narrow), shift, residual=residual), exact(wide, narrow, shift) + residual.double()
    )


def test_gelu_is_exact_to_a_rounding():
    values = torch.cat(
        [torch.linspace(-12, 12, 1568), torch.tensor([0.0, -0.0, 1e4, -1e4, 3e38, -3e38, 1e-30, -1e-30])]
    )
    x = torch.zeros(len(values), 32, dtype=HALF)
    x[:, 0] = values
    out = amx.infer(x, tiled(torch.eye(32, dtype=HALF)), None, gelu=True)[:, 0].double()
    expected = gelu(x[:, 0].double())
    assert bool(((out - expected).abs() <= 2**-8 * expected.abs() + 3e-7).all())


def test_a_row_is_the_same_alone_and_among_others():
    x, weight, bias, _ = given_layer(290, 416, 96)
    laid_out = tiled(weight)
    whole = amx.infer(x, laid_out, bias, gelu=True)
    for start, end in ((0, 1), (31, 33), (280, 290)):
        assert torch.equal(amx.infer(x[start:end], laid_out, bias, gelu=True), whole[start:end])


def test_results_do_not_depend_on_threads():
    x, weight, bias, _ = given_layer(290, 416, 96)
    found, threads = [], torch.get_num_threads()
    try:
        for some in (1, 2, 3):
            torch.set_num_threads(some)
            found.append(amx.infer(x, tiled(weight), bias, gelu=True))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert torch.equal(found[0], other)


@pytest.mark.parametrize("with_gelu", [False, True])
def test_nan_stays_in_its_row(with_gelu):
    x, weight, bias, _ = given_layer(40, 64, 32)
    clean = amx.infer(x, tiled(weight), bias, gelu=with_gelu)
    x[3, 5] = math.nan
    out = amx.infer(x, tiled(weight), bias, gelu=with_gelu)
    assert out[3].isnan().all()
    assert torch.equal(torch.cat([out[:3], out[4:]]), torch.cat([clean[:3], clean[4:]]))


def test_tiles_hold_pairs_of_inputs():
    weight = torch.arange(64 * 96).view(64, 96)
    parts = tiled(weight).view(2, 3, 2, 16, 16, 2)
    assert is_tiled(tiled(weight))
    assert not is_tiled(weight)
    assert parts[1, 2, 1, 3, 5, 1] == weight[32 + 16 + 5, 64 + 2 * 3 + 1]


def test_who_is_served():
    weight = torch.ones(64, 96, dtype=HALF)
    with machine("amx"):
        assert amx.fits(weight)
        assert is_tiled(pack(weight))
        assert HALF not in onednn.supported_dtypes() or not is_tiled(pack(weight, kernel="onednn"))
        for other in (weight.float(), weight[:63], weight[:, :95], weight[:0], weight.to("meta")):
            assert not amx.fits(other)
    with machine():
        assert not amx.fits(weight)
