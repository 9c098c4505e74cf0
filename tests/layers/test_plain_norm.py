"""A normalisation by the kernel equals the module's, and a hooked or foreign module is called itself."""

import pytest
import torch
from torch import nn

from longform.layers.norm import InferenceNorm
from strategies import generator, normal
from tolerances import assert_close


@pytest.fixture
def norm():
    layer = InferenceNorm(64).to(torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(normal(generator(1), 64, dtype=torch.bfloat16))
        layer.bias.copy_(normal(generator(2), 64, dtype=torch.bfloat16))
    return layer


@pytest.mark.parametrize("in_place", [True, False])
@torch.no_grad()
def test_equals_the_module(norm, in_place):
    x = normal(generator(3), 2, 5, 64, dtype=torch.bfloat16)
    expected = nn.functional.layer_norm(x.double(), (64,), norm.weight.double(), norm.bias.double(), norm.eps)
    assert_close(norm(x.clone(), in_place=in_place), expected)
    part = x.clone()[:, 1:4]  # not contiguous
    assert_close(norm(part, in_place=in_place), expected[:, 1:4])


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
    norm(x, in_place=True).sum().backward()
    assert x.grad is not None
    assert norm.weight.grad is not None
