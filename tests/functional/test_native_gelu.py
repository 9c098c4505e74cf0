"""GELU trained through by the compiled kernel, by this machine's units and by loops, against float64."""

import pytest
import torch
from torch.nn.functional import gelu

from longform.functional.linear import native_gelu
from longform.functional.linear.native_gelu import NativeGelu, trained_gelu
from longform.functional.native import library as native_library
from longform.layers.feed_forward import FeedForward
from strategies import generator, normal
from tolerances import assert_close

HALF = torch.bfloat16
UNITS = ["portable", *([native_library.best_units()] if native_library.best_units() else [])]


@pytest.fixture(params=UNITS, autouse=True)
def units(request, monkeypatch):
    """Loops on every machine; its own units where it has them."""
    for module in (native_library, native_gelu):
        monkeypatch.setattr(module, "best_units", lambda: request.param)
    return request.param


def gradient(call, x, slope, dtype=HALF):
    own = x.detach().to(dtype).requires_grad_()
    return torch.autograd.grad(call(own), own, slope.to(dtype))[0]


@pytest.mark.parametrize("shape", [(32,), (3, 64), (2, 5, 96), (7, 1024)])
def test_equals_autograd_in_float64(shape):
    x, slope = (normal(generator(seed), *shape, dtype=HALF) for seed in (1, 2))
    found = gradient(trained_gelu, x, slope)
    assert found.shape == x.shape
    assert found.dtype == HALF
    assert_close(found, gradient(gelu, x, slope, torch.float64))


def test_the_slope_is_exact_to_a_rounding():
    """Over all values that matter, the largest and those of no size."""
    values = torch.cat(
        [torch.linspace(-13, 13, 4084), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e4, -1e4, 3e38, -3e38])]
    )
    values = torch.cat([values, values.new_zeros(-len(values) % 32)]).to(HALF)
    found = gradient(NativeGelu.apply, values, torch.ones_like(values))
    right = gradient(gelu, values, torch.ones_like(values), torch.float64)
    assert (found.double() - right).abs().max() < 2e-6 + 2**-8 * right.abs().max()
    assert ((found.double() - right).abs() <= 2e-6 + 2**-8 * right.abs()).all()


def test_what_is_no_number_stays_none():
    x = torch.zeros(32, dtype=HALF)
    x[5] = torch.nan
    assert gradient(NativeGelu.apply, x, torch.ones_like(x)).isnan().nonzero().tolist() == [[5]]


def test_a_gradient_without_strides_of_its_own():
    x = normal(generator(3), 2, 32, dtype=HALF).requires_grad_()
    found = torch.autograd.grad(NativeGelu.apply(x).sum(), x)[0]
    assert_close(found, gradient(gelu, x, torch.ones_like(x), torch.float64))


def test_where_it_is_taken():
    x = normal(generator(4), 2, 32, dtype=HALF).requires_grad_()
    taken = "NativeGeluBackward"
    assert trained_gelu(x).grad_fn.name() == taken
    for other in (x.float(), x[:, :31], x.t(), x[:, :, None].expand(2, 32, 2)):
        assert trained_gelu(other).grad_fn.name() != taken
    assert trained_gelu(x.detach()).grad_fn is None
    with torch.no_grad():
        assert trained_gelu(x).grad_fn is None


def test_a_layer_is_trained_through_it():
    """Under autocast, against the same layer in float32."""
    torch.manual_seed(0)
    layer = FeedForward(32, 64, torch.nn.GELU())
    hidden = torch.randn(2, 9, 32)

    def gradients(half):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=HALF, enabled=half):
            out = layer(hidden)
        out.float().square().sum().backward()
        return {name: x.grad.clone() for name, x in layer.named_parameters()}

    found = gradients(True)
    for name, right in gradients(False).items():
        assert (found[name] - right).norm() < 0.02 * right.norm(), name
