from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longform.errors import ConfigurationError, InputError
from longform.layers.int8_linear import ROWS, Int8Linear
from longform.layers.replacing import replace_linears


def layer_and_rows(*, inputs: int = 19, outputs: int = 23, bias: bool = True, batch: int = 3, length: int = 5) -> Any:
    layer = nn.Linear(inputs, outputs, bias=bias)
    return layer, torch.randn(batch, length, inputs) * torch.logspace(-2, 2, length)[:, None] + 0.5


def plainly(layer: nn.Linear, row: Tensor) -> Tensor:
    """One row, number by number."""
    low, high = float(row.min()), float(row.max())
    middle, step = (low + high) / 2, (high - low) / 254
    out = []
    biases = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    for weights, bias in zip(layer.weight.double().tolist(), biases, strict=True):
        scale = max(abs(w) for w in weights) / 127
        pairs = zip(row.tolist(), weights, strict=True)
        out.append(
            scale * sum((middle + step * round((x - middle) / step)) * round(w / scale) for x, w in pairs) + bias
        )
    return torch.tensor(out)


@pytest.mark.parametrize("bias", [True, False])
def test_a_row_at_a_time_number_by_number(bias: bool) -> None:
    layer, x = layer_and_rows(bias=bias)
    expected = torch.stack([plainly(layer, row) for row in x.flatten(0, 1)]).view(3, 5, 23)
    with torch.no_grad():
        difference = (Int8Linear(layer)(x) - expected).abs()
    # where x / step is half an integer up to rounding, two roundings differ by one step
    assert bool((difference <= 1e-2 * expected.abs().amax(-1, keepdim=True)).all())
    assert float(difference.median()) < 1e-5


def test_it_is_near_the_float_layer_and_a_row_does_not_depend_on_others() -> None:
    layer, x = layer_and_rows(inputs=64, outputs=48, length=ROWS + 7)
    with torch.no_grad():
        out, expected = Int8Linear(layer)(x), layer(x)
        assert torch.equal(Int8Linear(layer)(x[1:2, 3:9]), out[1:2, 3:9])
    error = (out - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert float(error.max()) < 0.02


def test_one_large_number_in_a_row_does_not_spoil_the_others() -> None:
    """What is lost is half a step of each input, and not the rounding of all weights times the large number."""
    layer, x = layer_and_rows(inputs=384, outputs=48)
    x = torch.randn(64, 384)
    x[:, 7] = -20.0
    layer.weight.data[:, 7] = 0.0
    with torch.no_grad():
        error = (Int8Linear(layer)(x) - layer(x)).norm() / layer(x).norm()
    assert float(error) < 0.04


def test_a_constant_row_and_no_row() -> None:
    layer, _ = layer_and_rows()
    with torch.no_grad():
        found, expected = (f(torch.full((2, 19), 3.0)) for f in (Int8Linear(layer), layer))
        assert float((found - expected).norm() / expected.norm()) < 0.01
        assert Int8Linear(layer)(torch.empty(0, 4, 19)).shape == (0, 4, 23)


def test_no_gradient_and_no_saving() -> None:
    layer, x = layer_and_rows()
    quantised = nn.Sequential(layer, nn.GELU())
    replace_linears(quantised, Int8Linear)
    with pytest.raises(InputError, match="no gradient"):
        quantised(x.requires_grad_())
    with pytest.raises(ConfigurationError, match="is not saved"):
        quantised.state_dict()


@torch.no_grad()
def test_it_is_float32_on_the_cpu_and_nothing_else() -> None:
    layer, x = layer_and_rows()
    made = Int8Linear(layer)
    with pytest.raises(InputError, match=r"quantised for torch.float32 on the CPU, and given torch.bfloat16 on cpu"):
        made(x.bfloat16())
    with torch.autocast("cpu"), pytest.raises(InputError, match="called under autocast: load the float32 model"):
        made(x)
    with pytest.raises(InputError, match=r"quantised for torch.float32, and cast to torch.float16"):
        made.half()(x)


@torch.no_grad()
def test_a_weight_of_zeros_where_small_numbers_are_flushed() -> None:
    layer, x = layer_and_rows()
    layer.weight[4] = 0.0
    torch.set_flush_denormal(True)
    try:
        out = Int8Linear(layer)(x)
    finally:
        torch.set_flush_denormal(False)
    assert layer.bias is not None
    assert torch.equal(out[..., 4], layer.bias[4].expand(3, 5))


@torch.no_grad()
def test_the_layer_it_came_from_may_change() -> None:
    layer, x = layer_and_rows()
    made = Int8Linear(layer)
    expected = made(x)
    layer.weight.zero_()
    layer.bias.add_(5.0)
    assert torch.equal(made(x), expected)
