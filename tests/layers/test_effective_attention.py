"""map @ V is the layer's context, so output(map @ V) is the layer."""

import pytest
import torch
from attention_kinds import KINDS, Layer
from hypothesis import given, settings
from hypothesis import strategies as st

from longform.errors import InputError
from longform.layers.effective_attention import effective_attention
from strategies import generator, normal, seeds, texts
from tolerances import assert_close

WHOLE = [kind for kind in KINDS if not kind.selected]
LINEAR = [kind for kind in WHOLE if kind.projection in ("linear", "random", "mean", "weighted_mean")]
FULL = [kind for kind in KINDS if kind.window is not None and 2 * kind.window >= kind.longest]
NO_MAP = [kind for kind in WHOLE if kind.projection in ("max", "convolution") and kind not in FULL]


@pytest.mark.parametrize("kind", LINEAR, ids=str)
@settings(max_examples=12)
@given(st.data(), seeds)
def test_the_map_reproduces_the_layer(kind, data, seed):
    text = data.draw(texts(lengths=st.integers(1, kind.longest), kinds=("full", "right", "holes")))
    layer, hidden = Layer(kind, seed), normal(generator(seed + 1), text.batch, text.length, kind.width)
    found = effective_attention(layer.layer, hidden, text.mask, shared=layer.given)
    assert found.map.shape == (text.batch, kind.heads, text.length, text.length)
    assert (found.map * ~text.valid[:, None, None] == 0).all()
    seen = layer.layer.convolve(*layer.layer.prepare(hidden, text.mask))
    values = layer.layer.value(seen).unflatten(2, (kind.heads, -1)).transpose(1, 2)
    rebuilt = layer.layer.output((found.map @ values).transpose(1, 2).flatten(2))
    out, weights = layer(hidden, text.mask, output_attentions=True)
    assert torch.equal(found.weights, weights)
    kept = text.valid
    assert_close(rebuilt[kept], out[kept])


@pytest.mark.parametrize("kind", [k for k in LINEAR if k.projection in ("mean", "weighted_mean")], ids=str)
def test_rows_of_a_mean_map_sum_to_one(kind):
    layer, length = Layer(kind, 0), kind.longest - 1
    mask = torch.tensor([[1] * length, [1] * (length - 3) + [0] * 3])
    rows = effective_attention(layer.layer, normal(generator(1), 2, length, kind.width), mask).map.sum(dim=-1)
    assert_close(rows, torch.ones_like(rows))


@pytest.mark.parametrize("kind", NO_MAP, ids=str)
def test_what_has_no_map_says_so(kind):
    layer = Layer(kind, 0)
    with pytest.raises(InputError, match="has no n x n map"):
        effective_attention(layer.layer, torch.zeros(1, 5, kind.width).double(), shared=layer.given)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.selected], ids=str)
def test_selected_slots_have_no_map(kind):
    layer = Layer(kind, 0)
    with pytest.raises(InputError, match=f"not of selected_slots={kind.selected}"):
        effective_attention(layer.layer, torch.zeros(1, 12, kind.width).double(), shared=layer.given)


@pytest.mark.parametrize("kind", FULL, ids=str)
def test_a_window_over_everything_is_its_own_map(kind):
    found = effective_attention(Layer(kind, 0).layer, normal(generator(1), 1, 7, kind.width))
    assert found.map is found.weights
    assert found.map.shape == (1, kind.heads, 7, 7)
