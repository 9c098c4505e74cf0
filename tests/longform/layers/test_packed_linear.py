"""A packed layer against float64, and what it cannot do."""

import copy
import pickle

import pytest
import torch
from kernel_tables import machine
from torch import nn
from torch.nn.functional import gelu, linear

from longform.errors import ConfigurationError, InputError
from longform.functional.linear import can_pack, onednn
from longform.functional.linear.amx import is_tiled
from longform.layers.block import FeedForward
from longform.layers.linear import PackedLinear, pack_linear
from longform.models.inference import replace_linears
from strategies import generator, normal
from tolerances import assert_close


def given(*shape, inner, outer, dtype=torch.float32, bias=True):
    layer = nn.Linear(inner, outer, bias=bias, dtype=dtype)
    return normal(generator(0), *shape, inner, dtype=dtype), layer


@pytest.mark.parametrize("with_gelu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", onednn.supported_dtypes())
@pytest.mark.parametrize(
    ("shape", "inner", "outer"), [((1, 1), 1, 1), ((2, 5), 7, 3), ((3, 33), 48, 65), ((2, 40), 64, 96)]
)
@torch.no_grad()
def test_equals_float64(shape, inner, outer, dtype, bias, with_gelu):
    x, layer = given(*shape, inner=inner, outer=outer, dtype=dtype, bias=bias)
    expected = linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
    for kernel in (None, "onednn"):
        found = PackedLinear(layer, kernel=kernel)(x, activation=nn.GELU() if with_gelu else None)
        assert found.dtype == dtype
        assert_close(found, gelu(expected) if with_gelu else expected)


def test_our_own_kernel_is_taken_where_it_fits():
    x, layer = given(3, inner=64, outer=96, dtype=torch.bfloat16)
    with torch.no_grad(), machine("amx"):
        own, other = pack_linear(layer), pack_linear(layer, kernel="onednn")
        assert is_tiled(own.weight)
        assert other is layer or not is_tiled(other.weight)
        assert_close(own(x), linear(x.double(), layer.weight.double(), layer.bias.double()))
        with pytest.raises(InputError, match=r"given torch\.float32"):
            own(x.float())


@pytest.mark.parametrize("dtype", onednn.supported_dtypes())
@torch.no_grad()
def test_a_residual_is_added(dtype):
    x, layer = given(2, 5, inner=48, outer=65, dtype=dtype)
    residual = normal(generator(3), 2, 65, 5, dtype=dtype).transpose(1, 2)
    expected = linear(x.double(), layer.weight.double(), layer.bias.double()) + residual.double()
    assert_close(PackedLinear(layer, kernel="onednn")(x, residual=residual), expected)


@torch.no_grad()
def test_another_gelu_comes_after_the_product():
    x, layer = given(4, inner=6, outer=3)
    assert_close(PackedLinear(layer)(x, activation=nn.GELU("tanh")), gelu(layer(x), approximate="tanh").double())


@torch.no_grad()
def test_views_and_an_empty_batch():
    x, layer = given(4, 5, inner=6, outer=3)
    packed = PackedLinear(layer)
    for view in (x[:, 1:4], x.transpose(0, 1), x[..., :1].expand_as(x)):
        assert_close(packed(view), layer(view).double())
    assert packed(x[:0]).shape == (0, 5, 3)


@torch.no_grad()
def test_the_layer_it_came_from_may_change_and_it_can_be_copied():
    x, layer = given(4, inner=6, outer=3)
    expected, packed = layer(x).double(), PackedLinear(layer)
    layer.weight.zero_()
    layer.bias.add_(5)
    assert_close(packed(x), expected)
    assert_close(copy.deepcopy(packed)(x), expected)


@torch.no_grad()
def test_somebody_who_looks_on_sees_what_comes_before_gelu():
    x, layer = given(4, inner=6, outer=3)
    part, seen = FeedForward(6, 3, nn.GELU()), []
    part.intermediate = PackedLinear(layer)
    part.intermediate.register_forward_hook(lambda *passed: seen.append(passed[2]))
    found = part(x)
    assert_close(seen[0], layer(x).double())
    assert_close(found, part.output(gelu(layer(x))).double())


def test_what_it_cannot_do_is_said():
    x, layer = given(4, inner=6, outer=3)
    packed = PackedLinear(layer)
    with pytest.raises(InputError, match="no gradient"):
        packed(x.requires_grad_())
    with torch.no_grad(), pytest.raises(InputError, match=r"given torch\.bfloat16"):
        packed(x.bfloat16())
    with pytest.raises(ConfigurationError, match="not saved"):
        packed.state_dict()


def test_what_cannot_be_packed_stays():
    assert can_pack(torch.ones(3, 6))
    assert not can_pack(torch.ones(3, 6, dtype=torch.float64))
    assert not can_pack(torch.ones(0, 6))
    assert not can_pack(torch.ones(3, 6, device="meta"))
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2).double(), nn.Sequential(nn.Linear(2, 2)))
    replace_linears(network, pack_linear, keep=lambda parent, name: name == "0" and parent is network)
    assert [type(part).__name__ for part in network.modules() if isinstance(part, nn.Linear | PackedLinear)] == [
        "Linear", "Linear", "PackedLinear",
    ]  # fmt: skip


@torch.no_grad()
def test_autocast_and_pickles_are_refused():
    x, layer = given(4, inner=6, outer=3)
    packed = PackedLinear(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="under autocast"):
        packed(x)
    with pytest.raises(ConfigurationError, match="not pickled"):
        pickle.dumps(packed)


@torch.no_grad()
def test_a_layer_that_somebody_looks_at_stays():
    x, layer = given(4, inner=6, outer=3)
    model = nn.Sequential(layer, nn.Linear(3, 2))
    layer.register_forward_hook(lambda *passed: torch.zeros_like(passed[2]))
    expected = model(x).double()
    replace_linears(model, pack_linear)
    assert model[0] is layer
    assert isinstance(model[1], PackedLinear)
    assert_close(model(x), expected)
