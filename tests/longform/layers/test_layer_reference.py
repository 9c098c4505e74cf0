"""The whole layer against its twin: every projection, sharing and window, masks, gradients of every parameter."""

import pytest
import torch
from attention_kinds import DIM, KINDS, Layer
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import reference_full_attention, reference_over_batch

from strategies import Text, generator, gradients, mask_rows, normal, seeds, texts
from tolerances import assert_close


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=6)
@given(st.data(), seeds, st.sampled_from([torch.float64, torch.float64, torch.float32]))
def test_layer_and_gradients_equal_the_twin(kind, data, seed, dtype):
    lengths = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, kind.longest])
    text = data.draw(texts(lengths=lengths, batch=2, kinds=("full", "right", "holes")))
    layer = Layer(kind, seed, dtype)
    hidden = normal(generator(seed + 1), text.batch, text.length, kind.width, dtype=dtype, grad=True)
    kept = text.valid[..., None]
    out = layer(hidden, text.mask)
    expected = torch.where(kept, layer.twin(hidden, text.mask), 0.0)
    scope = "function" if dtype == torch.float64 else "model"
    assert_close(torch.where(kept, out, 0.0), expected, scope=scope)
    cotangent = normal(generator(seed + 2), *out.shape) * kept / kind.width
    leaves = [hidden, *(leaf for leaf in layer.leaves if leaf.requires_grad)]
    found, wanted = gradients(out, cotangent, leaves), gradients(expected, cotangent, leaves)
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, scope=scope)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=6)
@given(st.data(), seeds)
def test_with_and_without_weights_is_one_output(kind, data, seed):
    text = data.draw(texts(lengths=st.integers(1, kind.longest), batch=2))
    layer, hidden = Layer(kind, seed), normal(generator(seed + 1), text.batch, text.length, kind.width)
    out, weights = layer(hidden, text.mask, output_attentions=True)
    assert_close(torch.where(text.valid[..., None], layer(hidden, text.mask) - out, 0.0), torch.zeros_like(out))
    some = (text.valid & text.valid.any(dim=1, keepdim=True))[:, None]
    sums = torch.where(some, weights.sum(dim=-1), 1.0)
    assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=6)
@given(st.data(), seeds)
def test_the_weights_returned_have_the_gradient_of_those_used(kind, data, seed):
    """The output is linear in them: weights times gradients are the output's share that they make."""
    text = data.draw(texts(lengths=st.integers(1, kind.longest), batch=2))
    layer, hidden = Layer(kind, seed), normal(generator(seed + 1), text.batch, text.length, kind.width)
    out, weights = layer(hidden, text.mask, output_attentions=True)
    slope = normal(generator(seed + 2), *out.shape) * text.valid[..., None]
    (gradient,) = torch.autograd.grad((out * slope).sum(), weights)
    assert_close((weights * gradient).sum(dim=(1, 3)), ((out - layer.layer.output.bias) * slope).sum(dim=-1))


def full_attention(layer: Layer, hidden, mask):
    """Every head attends to every valid token (equation 2)."""
    query, key, value, output = layer.linears().values()
    text = Text(*hidden.shape[:2], mask)
    hidden = layer.layer.convolve(*layer.layer.prepare(hidden, mask))
    q, k, v = (torch.stack([torch.stack([w(x) for x in row]) for row in hidden]) for w in (query, key, value))
    q, k, v = (x.unflatten(2, (layer.kind.heads, DIM)) for x in (q, k, v))

    def one(b, i):
        return reference_full_attention(*(list(x[b, :, i]) for x in (q, k, v)), text.valid[b].tolist())

    context = reference_over_batch(one, text.batch, layer.kind.heads).transpose(1, 2).flatten(2)
    return torch.stack([torch.stack([output(token) for token in row]) for row in context])


ALL_WINDOWED = [kind for kind in KINDS if kind.window is not None]
POOLED = [kind for kind in KINDS if kind.projection in ("weighted_mean", "mean", "max") and len(set(kind.slots)) == 1]


@pytest.mark.parametrize("kind", ALL_WINDOWED, ids=str)
@settings(max_examples=8)
@given(st.data(), seeds)
def test_a_text_of_two_windows_gets_full_attention(kind, data, seed):
    length = data.draw(st.integers(1, min(2 * kind.window, kind.longest)))
    mask = torch.tensor([data.draw(mask_rows(length, ("full", "right", "holes")))])
    layer, hidden = Layer(kind, seed), normal(generator(seed), 1, length, kind.width)
    expected = full_attention(layer, hidden, mask)
    for options in ({}, {"output_attentions": True}):
        out = layer(hidden, mask, **options)
        out = out[0] if options else out
        assert_close(out[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("kind", POOLED, ids=str)
@settings(max_examples=8)
@given(st.data(), seeds)
def test_a_text_of_k_tokens_gets_full_attention(kind, data, seed):
    """However wide the batch that it is padded in."""
    length = data.draw(st.integers(1, kind.slots[0]))
    width = data.draw(st.integers(length, kind.longest))
    row = [*data.draw(mask_rows(length, ("full", "holes"))), *[0] * (width - length)]
    mask = torch.tensor([row])
    layer, hidden = Layer(kind, seed), normal(generator(seed), 1, width, kind.width)
    if kind.window is not None:  # a slot of one token weighs one token, and the memory's bias and budget are off
        torch.nn.init.zeros_(layer.layer.memory_bias) if layer.layer.memory_bias is not None else None
        layer.layer.memory_budget = None
    out, expected = layer(hidden, mask), full_attention(layer, hidden, mask)
    assert_close(out[mask.bool()], expected[mask.bool()])
