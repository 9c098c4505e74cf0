"""Attention trained through by the compiled kernels, by this machine's units and by loops, against float64 autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from longform.functional import attention
from longform.functional.attention import amx_training as subject
from longform.functional.attention import compressed_attention, usable_slots
from longform.functional.attention.amx_training import NativeAttention, native_trains_faster
from longform.functional.native import library as native_library
from longform.layers.attention import LinformerAttention
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16
UNITS = ["portable", *([native_library.best_units()] if native_library.best_units() else [])]


@pytest.fixture(params=UNITS, autouse=True)
def units(request, monkeypatch):
    """Loops on every machine; its own units where it has them."""
    for module in (native_library, subject):
        monkeypatch.setattr(module, "best_units", lambda: request.param)
    return request.param


def given_heads(queries: int, keys: int, dim: int = 32, heads: int = 3, batch: int = 2, seed: int = 0):
    """Queries, keys, values as a layer has them, and the output's gradient, of less than 1 in its sums."""
    source = generator(seed + queries + keys)
    sizes = (queries, keys, keys)
    found = [normal(source, batch, n, heads, dim, dtype=HALF).transpose(1, 2).requires_grad_() for n in sizes]
    slope = normal(source, batch, queries, heads, dim, dtype=HALF).transpose(1, 2)
    return found, slope * queries**-0.5


def outcome(call, heads, slope, dtype=HALF):
    """The output and the gradients of all three."""
    own = [x.detach().to(dtype).requires_grad_() for x in heads]
    out = call(*own)
    return [out, *torch.autograd.grad(out, own, slope.to(dtype))]


def both(heads, slope, usable=None):
    ours = outcome(lambda *x: NativeAttention.apply(*x, usable), heads, slope)
    exact = outcome(lambda *x: scaled_dot_product_attention(*x, attn_mask=usable), heads, slope, torch.float64)
    return zip(ours, exact, strict=True)


@pytest.mark.parametrize("dim", [32, 64, 96])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 7), (33, 2), (31, 31), (64, 65), (130, 97), (1100, 40)])
def test_equals_autograd_in_float64(queries, keys, dim):
    heads, slope = given_heads(queries, keys, dim)
    for found, right in both(heads, slope):
        assert found.dtype == HALF
        assert_close(found, right)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(1, 80), st.integers(1, 3), seeds)
def test_any_shape(queries, keys, batch, seed):
    heads, slope = given_heads(queries, keys, batch=batch, seed=seed)
    for found, right in both(heads, slope):
        assert_close(found, right)


@pytest.mark.parametrize("groups", [1, 3])
def test_hidden_slots(groups):
    """In the middle, at the end, whole groups of 32, and all of them: then slot 0 is seen."""
    (heads, slope), mask = given_heads(5, 70), torch.ones(2, groups, 70, dtype=torch.bool)
    mask[0, :, 2], mask[0, :, 30:], mask[1] = False, False, False
    mask[0, 0, 5] = groups > 1
    for usable in (usable_slots(mask), usable_slots(mask[:1])):
        for found, right in both(heads, slope, usable):
            assert_close(found, right)
    for found in outcome(lambda *x: NativeAttention.apply(*x, usable_slots(mask)), heads, slope)[2:]:
        assert not found[1, :, 1:].any()


def test_large_logits():
    """Powers that run out of floats, so that the forward pass looks for the largest."""
    (query, key, value), slope = given_heads(40, 50)
    heads = [query.detach() * 30, key.detach() * 30, value]
    ours, exact = zip(*both(heads, slope * 1e-2), strict=True)
    for found, right in zip(ours, exact, strict=True):
        assert (found - right).norm() < 2e-2 * right.norm()


def test_queries_are_shared_out(monkeypatch):
    """Where there are fewer heads than threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(subject, "PART", 16)
    try:
        heads, slope = given_heads(150, 40, heads=1, batch=1)
        assert subject._parts(1, 150) == 6
        for found, right in both(heads, slope):
            assert_close(found, right)
    finally:
        torch.set_num_threads(threads)


def test_rounding():
    """As far off float64's as what torch's fused attention gives, or less."""
    heads, slope = given_heads(1500, 40)
    fused = outcome(scaled_dot_product_attention, heads, slope)
    for other, (found, right) in zip(fused, both(heads, slope), strict=True):
        error, others = ((x.double() - right).norm() / right.norm() for x in (found, other))
        assert error < 1.5 * others


def test_a_gradient_without_strides_of_its_own():
    heads, _ = given_heads(9, 5)
    out = NativeAttention.apply(*heads, None)
    found = torch.autograd.grad(out.sum(), heads)
    right = outcome(scaled_dot_product_attention, heads, torch.ones_like(out), torch.float64)[1:]
    for x, y in zip(found, right, strict=True):
        assert_close(x, y)


def test_nan_is_not_lost():
    heads, slope = given_heads(40, 7)
    with torch.no_grad():
        heads[0][0, 0, 3, 1] = torch.nan
    out, d_query, *_ = outcome(lambda *x: NativeAttention.apply(*x, None), heads, slope)
    assert out[0, 0, 3].isnan().all()
    assert d_query[0, 0, 3].isnan().all()
    assert not d_query[0, 0, :3].isnan().any()


def test_it_has_no_second_derivative():
    heads, _ = given_heads(3, 3)
    first = torch.autograd.grad(NativeAttention.apply(*heads, None).square().sum(), heads, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


def test_where_it_is_taken(monkeypatch):
    heads, _ = given_heads(20, 3)
    assert native_trains_faster(*heads)
    assert not native_trains_faster(*(x.float() for x in heads))
    assert not native_trains_faster(*(x.detach() for x in heads))
    assert not native_trains_faster(*(x[..., :31] for x in heads))
    assert not native_trains_faster(heads[0][:, :, :5], *heads[1:])
    with torch.no_grad():
        assert not native_trains_faster(*heads)
    for module in (native_library, subject):
        monkeypatch.setattr(module, "best_units", lambda: None)
    assert not native_trains_faster(*heads)


def test_a_layer_is_trained_through_it(monkeypatch):
    """Under autocast, with padding; with dropout on the weights torch's own attention is taken."""
    calls = []
    monkeypatch.setattr(attention, "native_trains_faster", lambda *x: calls.append(1) or native_trains_faster(*x))
    torch.manual_seed(0)
    layer = LinformerAttention(64, 2, max_length=24, projected_length=6, dropout=0.1).eval()
    hidden, mask = torch.randn(2, 24, 64), torch.ones(2, 24)
    mask[1, 17:] = 0

    def gradients(half):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=HALF, enabled=half):
            out = layer(hidden, mask)
        (out.float() * mask[..., None]).square().sum().backward()
        return {name: x.grad.clone() for name, x in layer.named_parameters()}

    found = gradients(True)
    assert calls
    for name, right in gradients(False).items():
        if name != "key.bias":  # moves all logits alike, so that its gradient is 0
            assert (found[name] - right).norm() < 0.05 * right.norm(), name
    calls.clear()
    layer.train()(hidden, mask)
    assert not calls


def test_a_document_alone_has_the_gradient_it_has_in_a_batch():
    heads, slope = given_heads(40, 12)
    together = outcome(lambda *x: compressed_attention(*x)[0], heads, slope)
    alone = outcome(lambda *x: compressed_attention(*x)[0], [x[:1] for x in heads], slope[:1])
    for x, y in zip(alone, together, strict=True):
        assert torch.equal(x, y[:1])
