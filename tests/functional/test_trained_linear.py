"""Linear layers trained through by the compiled kernels, by this machine's units and by loops, against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine
from torch.nn.functional import gelu, linear

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
pytestmark = pytest.mark.usefixtures("units", "with_amx")


@pytest.fixture
def with_amx():
    with machine("amx"):
        yield


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


def test_gradients_do_not_depend_on_threads():
    (weight, bias), x, threads = layer(64, 288), states(700, 64), torch.get_num_threads()
    found = []
    try:
        for some in (1, 2, 3):
            torch.set_num_threads(some)
            out = AmxLinear.apply(x, weight, bias)
            found.append([out, *torch.autograd.grad(out, (x, weight, bias), torch.ones_like(out))])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_what_is_no_number_stays_in_its_row():
    (weight, bias), x = layer(64, 96), states(40, 64).detach()
    x[3, 5] = torch.nan
    assert AmxLinear.apply(x, weight, bias).isnan().all(dim=1).nonzero().tolist() == [[3]]
    assert input_gradient(x, layer(96, 64)[0]).isnan().any(dim=1).nonzero().tolist() == [[3]]


def test_rows_may_stand_apart():
    weight, bias = layer(64, 96)
    wide = states(33, 128).detach()
    for x in (wide[:, 64:], wide[::2, :64], wide[:, :64].t().contiguous().t(), wide[:1, :64].expand(5, -1)):
        leaves = [x.requires_grad_(), weight, bias]
        check(linear, AmxLinear.apply(*leaves), leaves)
