"""The layer in other number formats and as a compiled graph sees it."""

import math

import pytest
import torch
from attention_kinds import KINDS, Layer
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import generator, gradients, normal, seeds, texts
from tolerances import TOLERANCES, assert_close

MASK = [[1, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0]]


def half(kind, seed: int):
    """A layer with weights of the usual size, a hidden state, a mask."""
    layer = Layer(kind, seed, torch.bfloat16)
    with torch.no_grad():
        for part in {layer.layer.query or layer.layer.key, layer.layer.key, layer.layer.value, layer.layer.output}:
            part.weight /= math.sqrt(kind.width)
    return layer, normal(generator(seed), 3, 7, kind.width, dtype=torch.bfloat16, grad=True), torch.tensor(MASK)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bfloat16_is_near_the_twin(kind):
    layer, hidden, mask = half(kind, 3)
    out, kept = layer(hidden, mask), mask.bool()
    assert out.dtype == torch.bfloat16
    assert torch.isfinite(out).all()
    assert_close(out[kept], layer.twin(hidden, mask)[kept], scope="model")
    leaves = [hidden, *(leaf for leaf in layer.leaves if leaf.requires_grad)]
    for found, leaf in zip(gradients(out, kept[..., None], leaves), leaves, strict=True):
        assert found.dtype == leaf.dtype
        assert torch.isfinite(found).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_autocast_is_near_the_twin(kind):
    """As Trainer runs bf16: float32 weights, and products in bfloat16."""
    layer, hidden, mask = half(kind, 4)
    layer.layer.float()
    if layer.shared is not None:
        layer.shared.float()
    hidden, kept = hidden.detach().float().requires_grad_(), mask.bool()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(hidden, mask)
    assert torch.isfinite(out).all()
    expected, tolerance = layer.twin(hidden, mask), TOLERANCES["model"][torch.bfloat16]
    torch.testing.assert_close(
        out[kept].double(), expected[kept], atol=tolerance.atol, rtol=tolerance.rtol, check_dtype=False
    )
    leaves = [hidden, *(leaf for leaf in layer.leaves if leaf.requires_grad)]
    for found, leaf in zip(gradients(out, kept[..., None], leaves), leaves, strict=True):
        assert found.dtype == leaf.dtype
        assert torch.isfinite(found).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=8)
@given(st.data(), seeds)
def test_what_a_compiled_graph_computes_is_the_same(kind, data, seed):
    """Compiled graphs keep every mask and every slot; here their branches run without a compiler."""
    text = data.draw(texts(lengths=st.integers(1, kind.longest), batch=2))
    layer, hidden = Layer(kind, seed), normal(generator(seed), text.batch, text.length, kind.width)
    plain = layer(hidden, text.mask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        compiled = layer(hidden, text.mask)
    assert torch.isfinite(compiled).all()
    kept = text.valid
    assert_close(compiled[kept], plain[kept])
