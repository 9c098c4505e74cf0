"""The layer in other number formats and as a compiled graph sees it; the n x n map that its weights imply."""

import math

import pytest
import torch
from attention_kinds import DIM, KINDS, Layer
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import (
    reference_effective_map,
    reference_effective_map_of_means,
    reference_length,
    reference_slot_size,
)

from strategies import generator, gradients, normal, seeds, texts
from tolerances import TOLERANCES, assert_close

MASK = [[1, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0]]


def half(kind, seed: int):
    """A layer with weights of the usual size, a hidden state, a mask."""
    layer = Layer(kind, seed, torch.bfloat16)
    with torch.no_grad():
        for part in (layer.layer.query, layer.layer.key, layer.layer.value, layer.layer.output):
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


MAPPED = [kind for kind in KINDS if kind.projection in ("linear", "random", "mean") and not (kind.window or kind.sinks)]


@pytest.mark.parametrize("kind", [kind for kind in MAPPED if len(set(kind.slots)) == 1], ids=str)
@settings(max_examples=10)
@given(st.data(), seeds)
def test_weights_times_f_is_a_map_over_tokens(kind, data, seed):
    """softmax(Q (E K)^T / sqrt(d)) F is n x n; times V it is the output of the head (theorem 1's P~)."""
    lengths = st.integers(1, kind.longest)
    text = data.draw(texts(lengths=lengths, batch=2, kinds=("full", "right", "holes")))
    layer, hidden = Layer(kind, seed), normal(generator(seed), text.batch, text.length, kind.width)
    out, weights = layer(hidden, text.mask, output_attentions=True)
    seen = layer.layer.convolve(*layer.layer.prepare(hidden, text.mask))
    values = layer.layer.value(seen).unflatten(2, (kind.heads, DIM))
    rows = []
    for b in range(text.batch):
        valid = text.valid[b].tolist()
        heads = []
        for i, memory in enumerate(layer.memories()):
            if memory.value is None:
                base = math.ceil(kind.longest / memory.slots)
                size = reference_slot_size(reference_length(valid), base_size=base, slots=memory.slots)
                implied = reference_effective_map_of_means(weights[b, i], valid, size=size)
                assert_close(implied.sum(dim=1), torch.ones(text.length).double())
            else:
                implied = reference_effective_map(weights[b, i], memory.value, valid)
            assert (implied[:, ~text.valid[b]] == 0).all()
            heads.append(implied @ values[b, :, i])
        rows.append(layer.layer.output(torch.cat(heads, dim=1)))
    assert_close(torch.stack(rows)[text.valid], out[text.valid])
