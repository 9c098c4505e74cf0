"""A normalisation for inference equals the module's, is seen by hooks, and has gradients."""

import pytest
import torch
from torch import nn

from longform.layers.block import InferenceNorm
from strategies import generator, normal
from tolerances import assert_close


@pytest.fixture
def norm():
    layer = InferenceNorm(64).to(torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(normal(generator(1), 64, dtype=torch.bfloat16))
        layer.bias.copy_(normal(generator(2), 64, dtype=torch.bfloat16))
    return layer


@torch.no_grad()
def test_equals_the_module(norm):
    x = normal(generator(3), 2, 5, 64, dtype=torch.bfloat16)
    expected = nn.functional.layer_norm(x.double(), (64,), norm.weight.double(), norm.bias.double(), norm.eps)
    assert_close(norm(x), expected)
    assert_close(norm(x[:, 1:4]), expected[:, 1:4])  # not contiguous
    assert_close(norm(x - 1.0, torch.ones_like(x)), expected, scope="model")


@torch.no_grad()
def test_a_hook_sees_input_and_output(norm):
    seen = []
    norm.register_forward_hook(lambda _, given, out: seen.append((given[0].clone(), out)))
    x = normal(generator(3), 2, 5, 64, dtype=torch.bfloat16)
    given = x.clone()
    assert_close(norm(x), seen[0][1])
    assert torch.equal(seen[0][0], given)


def test_gradients_flow(norm):
    x = normal(generator(3), 2, 5, 64, dtype=torch.bfloat16).requires_grad_()
    norm(x).sum().backward()
    assert x.grad is not None
    assert norm.weight.grad is not None
