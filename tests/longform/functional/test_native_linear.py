"""The compiled linear layer, in inference and in training, by this machine's units and by loops, against float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine
from torch.nn.functional import gelu, linear

from longform.functional.linear import amx, onednn, pack
from longform.functional.linear.amx import is_tiled, tiled
from longform.functional.linear.amx_training import (
    AmxFeedForward,
    AmxLinear,
    input_gradient,
    product,
    weight_gradient,
)
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF, WIDE = torch.bfloat16, torch.float32
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
    weight, bias = layer(64, 96)
    for x in (wide[:, 32:], wide[::2, :64], wide[:, :64].t().contiguous().t(), wide[:1, :64].expand(5, -1)):
        leaves = [x.detach().requires_grad_(), weight, bias]
        check(linear, AmxLinear.apply(*leaves), leaves)


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
    leaves, found, threads = [states(700, 64), *layer(64, 288)], [], torch.get_num_threads()
    try:
        for some in (1, 2, 3):
            torch.set_num_threads(some)
            out = AmxLinear.apply(*leaves)
            trained = [out, *torch.autograd.grad(out, leaves, torch.ones_like(out))]
            found.append([amx.infer(x, tiled(weight), bias, gelu=True), *trained])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("with_gelu", [False, True])
def test_nan_stays_in_its_row(with_gelu):
    x, weight, bias, _ = given_layer(40, 64, 32)
    clean = amx.infer(x, tiled(weight), bias, gelu=with_gelu)
    x[3, 5] = math.nan
    out = amx.infer(x, tiled(weight), bias, gelu=with_gelu)
    assert out[3].isnan().all()
    assert torch.equal(torch.cat([out[:3], out[4:]]), torch.cat([clean[:3], clean[4:]]))
    assert AmxLinear.apply(x, *layer(64, 96)).isnan().all(dim=1).nonzero().tolist() == [[3]]
    assert input_gradient(x, layer(96, 64)[0]).isnan().any(dim=1).nonzero().tolist() == [[3]]


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


def layer(inputs: int, outputs: int, seed: int = 0):
    source = generator(seed)
    weight = normal(source, outputs, inputs, dtype=WIDE) / inputs**0.5
    return weight.requires_grad_(), normal(source, outputs, dtype=WIDE).requires_grad_()


def states(*shape: int, seed: int = 1):
    return normal(generator(seed), *shape, dtype=HALF).requires_grad_()


def check(call, out, leaves):
    """``out`` and its gradients are ``call``'s in float64; of rounded weights, whose gradients are not rounded."""
    rounded = [x.to(HALF) if x is not None and x.dim() > 1 else x for x in leaves]
    wide = [None if x is None else x.detach().double().requires_grad_() for x in rounded]
    right, slope = call(*wide), normal(generator(4), *out.shape, dtype=HALF)
    assert_close(out, right)
    leaves, wide = ([x for x in some if x is not None] for some in (leaves, wide))
    expected = torch.autograd.grad(right, wide, slope.double())
    for leaf, found, exactly in zip(leaves, torch.autograd.grad(out, leaves, slope), expected, strict=True):
        assert found.dtype == leaf.dtype
        near(found, exactly)


def near(found, expected):
    """Sums of products of rounded factors: to a part of the largest."""
    bound = 2e-2 if found.dtype == HALF else 1e-2
    assert (found.double() - expected).abs().max() <= bound * expected.abs().max()


def feed(x, weight, bias, second, shift):
    return linear(gelu(linear(x, weight, bias)), second, shift)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 32, 32), (31, 64, 96), (33, 416, 64), (70, 96, 160), (300, 32, 288), (130, 1024, 32), (2100, 32, 64)],
)
def test_products_equal_float64(rows, inputs, outputs):
    (weight, bias), x = layer(inputs, outputs), states(rows, inputs)
    slope, before = states(rows, outputs, seed=2), states(rows, inputs, seed=3)
    weight, bias, x, slope, before = (y.detach() for y in (weight, bias, x, slope, before))
    rounded = weight.to(HALF).double()
    expected = linear(x.double(), rounded, bias.double())
    assert_close(product(x, weight, bias), expected)
    assert_close(product(x, weight, None), expected - bias.double())
    kept = torch.full((rows, outputs), torch.nan, dtype=HALF)
    assert_close(product(x, weight, bias, before_gelu=kept), gelu(expected))
    assert_close(kept, expected)
    assert_close(input_gradient(slope, weight), slope.double() @ rounded)
    leaf = before.double().requires_grad_()
    steep = torch.autograd.grad(gelu(leaf).sum(), leaf)[0]
    assert_close(input_gradient(slope, weight, before_gelu=before), slope.double() @ rounded * steep)
    d_weight, d_bias = weight_gradient(slope, x, with_bias=True)
    assert d_weight.dtype == d_bias.dtype == WIDE
    torch.testing.assert_close(d_weight.double(), slope.double().t() @ x.double(), atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(d_bias.double(), slope.double().sum(0), atol=1e-3, rtol=1e-4)
    assert weight_gradient(slope, x, with_bias=False)[1] is None


@given(seeds, st.integers(1, 70), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=20)
def test_weight_gradients_of_any_size(seed, rows, inputs, outputs):
    x, slope = states(rows, 32 * inputs, seed=seed).detach(), states(rows, 32 * outputs, seed=seed + 1).detach()
    d_weight, d_bias = weight_gradient(slope, x, with_bias=True)
    torch.testing.assert_close(d_weight.double(), slope.double().t() @ x.double(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(d_bias.double(), slope.double().sum(0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", [(1, 32), (2, 33, 64), (2, 3, 40, 96)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_linear_layer_equals_autograd_in_float64(shape, with_bias):
    weight, bias = layer(shape[-1], 160)
    leaves = [states(*shape), weight, bias if with_bias else None]
    out = AmxLinear.apply(*leaves)
    check(linear, out, leaves)


@pytest.mark.parametrize(("shape", "inside"), [((1, 32), 64), ((2, 33, 64), 288), ((3, 96), 1024)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_feed_forward_part_equals_autograd_in_float64(shape, inside, with_bias):
    (weight, bias), (second, shift) = layer(shape[-1], inside), layer(inside, shape[-1], seed=5)
    leaves = [states(*shape), weight, bias if with_bias else None, second, shift if with_bias else None]
    out = AmxFeedForward.apply(*leaves)
    check(feed, out, leaves)


def test_frozen_leaves_get_none():
    (weight, bias), (second, shift) = layer(64, 96), layer(96, 64)
    for wanted in range(5):
        leaves = [y.detach() for y in (states(3, 64), weight, bias, second, shift)]
        leaves[wanted].requires_grad_()
        AmxFeedForward.apply(*leaves).sum().backward()
        assert [leaf.grad is not None for leaf in leaves] == [i == wanted for i in range(5)]
    for wanted in range(3):
        leaves = [y.detach() for y in (states(3, 64), weight, bias)]
        leaves[wanted].requires_grad_()
        AmxLinear.apply(*leaves).sum().backward()
        assert [leaf.grad is not None for leaf in leaves] == [i == wanted for i in range(3)]
