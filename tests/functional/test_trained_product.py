"""E X trained through by the compiled kernels, by this machine's units and by loops, against float64."""

import pytest
import torch

from longform.functional.dense import dense_project, select_rows
from longform.functional.linear import trained_product
from longform.functional.linear.trained_product import NativeProduct, product_trains_natively
from longform.functional.native import library as native_library
from strategies import generator, normal
from tolerances import assert_close

HALF = torch.bfloat16
UNITS = ["portable", *([native_library.best_units()] if native_library.best_units() else [])]


@pytest.fixture(params=UNITS, autouse=True)
def units(request, monkeypatch):
    """Loops on every machine; its own units where it has them."""
    for module in (native_library, trained_product):
        monkeypatch.setattr(module, "best_units", lambda: request.param)
    return request.param


def factors(rows: int, length: int, features: int):
    source = generator(rows)
    left = (normal(source, rows, length) / length**0.5).to(HALF).requires_grad_()
    return left, normal(source, length, features, dtype=HALF).requires_grad_()


@pytest.mark.parametrize(("rows", "length", "features"), [(1, 32, 32), (5, 64, 96), (33, 416, 32), (40, 2048, 64)])
def test_equals_autograd_in_float64(rows, length, features):
    given = factors(rows, length, features)
    out = NativeProduct.apply(*given)
    wide = [x.detach().double().requires_grad_() for x in given]
    right = wide[0] @ wide[1]
    assert_close(out, right)
    slope = normal(generator(3), *out.shape, dtype=HALF)
    expected = torch.autograd.grad(right, wide, slope.double())
    for found, exactly in zip(torch.autograd.grad(out, given, slope), expected, strict=True):
        assert found.dtype == HALF
        assert (found.double() - exactly).abs().max() <= 1e-2 * exactly.abs().max()


def test_factors_and_slopes_may_stand_apart():
    left, right = factors(5, 96, 64)
    given = [left.detach()[:, 32:].requires_grad_(), right.detach()[32:, :32].requires_grad_()]
    found = torch.autograd.grad(NativeProduct.apply(*given).sum(), given)
    wide = [x.detach().double().requires_grad_() for x in given]
    for ours, exactly in zip(found, torch.autograd.grad((wide[0] @ wide[1]).sum(), wide), strict=True):
        assert (ours.double() - exactly).abs().max() <= 1e-2 * exactly.abs().max()


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_frozen_factor_gets_none(wanted):
    given = [x.detach() for x in factors(3, 32, 32)]
    given[wanted].requires_grad_()
    NativeProduct.apply(*given).sum().backward()
    assert [x.grad is not None for x in given] == [wanted == 0, wanted == 1]


@pytest.mark.parametrize("texts", [1, 2])
def test_a_projection_is_trained_through_it(texts):
    """One text by the kernels, two by torch; E stays float32."""
    matrix = (normal(generator(4), 1, 12, 64, dtype=torch.float32) / 8).requires_grad_()
    x = normal(generator(5), texts, 64, 96, dtype=HALF).requires_grad_()
    out = dense_project(x, select_rows(matrix, None, length=64))
    assert out.shape == (texts, 1, 12, 96)
    slope = normal(generator(6), *out.shape, dtype=HALF)
    found = torch.autograd.grad(out, (matrix, x), slope)
    wide = [matrix.detach().to(HALF).double().requires_grad_(), x.detach().double().requires_grad_()]
    right = (wide[0] @ wide[1])[:, None]
    assert_close(out, right)
    for ours, exactly in zip(found, torch.autograd.grad(right, wide, slope.double()), strict=True):
        assert (ours.double() - exactly).abs().max() <= 1e-2 * exactly.abs().max()


def test_where_it_is_taken(monkeypatch):
    left, right = factors(5, 64, 96)
    assert product_trains_natively(left, right)
    assert product_trains_natively(left.detach(), right)
    assert not product_trains_natively(left.detach(), right.detach())
    assert not product_trains_natively(left.float(), right.float())
    assert not product_trains_natively(left[:, :31], right[:31])
    assert not product_trains_natively(left, right[:, :31])
    assert not product_trains_natively(left.new_ones(1, 4096, requires_grad=True), right.new_ones(4096, 32))
    with torch.no_grad():
        assert not product_trains_natively(left, right)
    monkeypatch.setattr(trained_product, "best_units", lambda: None)
    assert not product_trains_natively(left, right)
