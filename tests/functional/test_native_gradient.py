"""Attention trained through by the compiled kernels, by this machine's units and by loops, against float64 autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine, taken
from torch.nn.functional import scaled_dot_product_attention

from longform.functional.attention import compiled as subject
from longform.functional.attention import slot_attention, usable_slots
from longform.functional.attention.formula import AttentionCall
from longform.functional.dispatch import listening
from longform.layers.attention import LinformerAttention
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16
pytestmark = pytest.mark.usefixtures("units")


def trained(query, key, value, usable=None):
    return subject.train(AttentionCall(query, key, value, usable))


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
    ours = outcome(lambda *x: trained(*x, usable), heads, slope)
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
    for found in outcome(lambda *x: trained(*x, usable_slots(mask)), heads, slope)[2:]:
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
    out = trained(*heads)
    found = torch.autograd.grad(out.sum(), heads)
    right = outcome(scaled_dot_product_attention, heads, torch.ones_like(out), torch.float64)[1:]
    for x, y in zip(found, right, strict=True):
        assert_close(x, y)


def test_nan_is_not_lost():
    heads, slope = given_heads(40, 7)
    with torch.no_grad():
        heads[0][0, 0, 3, 1] = torch.nan
    out, d_query, *_ = outcome(trained, heads, slope)
    assert out[0, 0, 3].isnan().all()
    assert d_query[0, 0, 3].isnan().all()
    assert not d_query[0, 0, :3].isnan().any()


def test_where_it_is_taken():
    heads, _ = given_heads(20, 3)
    with machine("amx"):
        assert taken("attention", AttentionCall(*heads)) == "compiled_training"
        assert taken("attention", AttentionCall(*(x.float() for x in heads))) == "sdpa"
        assert taken("attention", AttentionCall(*(x.detach() for x in heads))) == "compiled"
        assert taken("attention", AttentionCall(*(x[..., :31] for x in heads))) == "sdpa"
        assert taken("attention", AttentionCall(heads[0][:, :, :5], *heads[1:])) == "sdpa"
        with torch.no_grad():
            assert taken("attention", AttentionCall(*heads)) == "compiled"
    with machine():
        assert taken("attention", AttentionCall(*heads)) == "sdpa"


def test_a_layer_is_trained_through_it():
    """Under autocast, with padding; with dropout on the weights torch's own attention is taken."""
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

    with machine("amx"), listening() as heard:
        found = gradients(True)
    assert ("attention", "compiled_training") in [choice[:2] for choice in heard]
    for name, right in gradients(False).items():
        if name != "key.bias":  # moves all logits alike, so that its gradient is 0
            assert (found[name] - right).norm() < 0.05 * right.norm(), name
    with machine("amx"), listening() as heard, torch.autocast("cpu", dtype=HALF):
        layer.train()(hidden, mask)
    assert ("attention", "compiled_training") not in [choice[:2] for choice in heard]


def test_a_document_alone_has_the_gradient_it_has_in_a_batch():
    heads, slope = given_heads(40, 12)
    with machine("amx"):
        together = outcome(lambda *x: slot_attention(*x)[0], heads, slope)
        alone = outcome(lambda *x: slot_attention(*x)[0], [x[:1] for x in heads], slope[:1])
    for x, y in zip(alone, together, strict=True):
        assert torch.equal(x, y[:1])
