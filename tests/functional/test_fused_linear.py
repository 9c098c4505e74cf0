"""One kernel's call against torch's, and where it must not be made."""

import pytest
import torch
from kernel_tables import taken
from torch.nn.functional import gelu, linear
from torch.utils.flop_counter import FlopCounterMode

from longform.functional.linear import linear as fused_linear
from longform.functional.linear import onednn
from longform.functional.linear.call import LinearCall
from strategies import generator, normal
from tolerances import assert_close

DTYPES = (torch.float32, torch.bfloat16)


def given(dtype=torch.float32, shape=(2, 5), inner=7, outer=3):
    source = generator(0)
    return (
        normal(source, *shape, inner, dtype=dtype),
        normal(source, outer, inner, dtype=dtype),
        normal(source, outer, dtype=dtype),
    )


def served(*tensors):
    return taken("linear", LinearCall(*tensors)) == "onednn"


@pytest.mark.parametrize("with_gelu", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize(("shape", "inner", "outer"), [((1, 1), 1, 1), ((2, 5), 7, 3), ((1, 33), 48, 65), ((4,), 5, 2)])
def test_equals_float64(shape, inner, outer, dtype, with_bias, with_gelu):
    x, weight, bias = given(dtype, shape, inner, outer)
    weight, bias = weight / inner**0.5, bias if with_bias else None
    expected = linear(x.double(), weight.double(), None if bias is None else bias.double())
    out = fused_linear(x, weight, bias, gelu=with_gelu)
    assert out.dtype == dtype
    assert_close(out, gelu(expected) if with_gelu else expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_are_read_as_they_are(dtype):
    x, weight, bias = given(dtype, (4, 6))
    for view in (x[:, 1:4], x.transpose(0, 1), x[..., :1].expand_as(x)):
        assert_close(fused_linear(view, weight, bias), linear(view.double(), weight.double(), bias.double()))
    assert_close(fused_linear(x, weight.t().contiguous().t(), bias), linear(x, weight, bias))
    for strided in (normal(generator(1), 6, dtype=dtype)[::2], normal(generator(2), 1, dtype=dtype).expand(3)):
        expected = linear(x.double(), weight.double(), strided.double())
        assert_close(fused_linear(x, weight, strided), expected)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_a_residual_is_added(dtype, with_bias):
    x, weight, bias = given(dtype)
    bias = bias if with_bias else None
    whole = normal(generator(3), 2, 3, 5, dtype=dtype)
    for residual in (whole[:, 0, :3].unsqueeze(1).expand(2, 5, 3), whole.transpose(1, 2)):
        expected = residual.double() + linear(x.double(), weight.double(), None if bias is None else bias.double())
        assert_close(fused_linear(x, weight, bias, residual=residual), expected)
    wide = fused_linear(x, weight, bias, residual=whole.transpose(1, 2).double())
    assert wide.dtype == torch.float64
    assert_close(wide.to(dtype), expected)
    if dtype in onednn.supported_dtypes():
        wide = onednn.infer(LinearCall(x, weight, bias, residual=whole.transpose(1, 2).double()))
        assert_close(wide.to(dtype), expected)


def test_an_empty_batch():
    x, weight, bias = given(shape=(0, 5))
    assert fused_linear(x, weight, bias, gelu=True).shape == (0, 5, 3)


def test_it_is_called_where_nothing_forbids_it():
    with torch.no_grad():
        for dtype in onednn.supported_dtypes():
            assert served(*given(dtype))
            assert served(*(t.requires_grad_() for t in given(dtype)))
    assert torch.float32 in onednn.supported_dtypes()


def test_not_where_a_gradient_is_wanted():
    for i in range(3):
        tensors = given()
        tensors[i].requires_grad_()
        assert not served(*tensors)
        assert fused_linear(*tensors, gelu=True).requires_grad


def test_not_where_somebody_looks_on(monkeypatch):
    x, weight, bias = given()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not served(x, weight, bias)
        assert fused_linear(x, weight, bias).dtype == torch.bfloat16
    with FlopCounterMode(display=False) as counter:
        fused_linear(x, weight, bias)
    assert counter.get_total_flops() == 2 * 2 * 5 * 7 * 3
    rows = torch.vmap(lambda row: fused_linear(row, weight, bias))(x)
    assert_close(rows, linear(x, weight, bias))
    monkeypatch.setattr(torch.jit, "is_tracing", lambda: True)
    assert not served(x, weight, bias)


def test_not_for_mixed_dtypes_or_foreign_weights(monkeypatch):
    x, weight, bias = given()
    assert not served(x, weight.bfloat16(), bias)
    assert not served(x, weight, bias.bfloat16())
    assert not served(x.half(), weight.half(), bias.half())

    class Packed(torch.Tensor):
        pass

    assert not served(x, weight.as_subclass(Packed), bias)
    monkeypatch.setattr(onednn, "supported_dtypes", lambda: (torch.float32,))
    assert not served(*given(torch.bfloat16))
