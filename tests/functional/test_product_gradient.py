"""Attention by products that is trained through: its gradients against autograd's through the plain formula."""

import pytest
import torch
from kernel_tables import machine, taken
from torch.nn.functional import scaled_dot_product_attention

from longform.functional.attention import bmm as product_attention
from longform.functional.attention import usable_slots
from longform.functional.attention.bmm import BmmAttention
from longform.functional.attention.call import AttentionCall
from longform.functional.dispatch import listening
from longform.layers.attention import LinformerAttention
from strategies import generator, normal
from tolerances import assert_close


@pytest.fixture
def small(monkeypatch):
    """Four queries at a time."""
    monkeypatch.setattr(product_attention, "LOGITS", 40)
    monkeypatch.setattr(product_attention, "ROWS", 4)


def given_heads(queries: int, keys: int, dtype: torch.dtype = torch.float64):
    source, sizes = generator(1), (queries, keys, keys)
    heads = [normal(source, 2, n, 3, 5, dtype=dtype).transpose(1, 2).requires_grad_() for n in sizes]
    return heads, normal(source, 2, 3, queries, 5, dtype=dtype)


def gradients(out, heads, slope):
    return torch.autograd.grad(out, heads, slope.to(out.dtype))


def masks():
    """In the middle, at the end, and all slots hidden, by head and for all heads; one for all documents."""
    for groups in (1, 3):
        mask = torch.ones(2, groups, 6, dtype=torch.bool)
        mask[0, :, 2], mask[0, :, 4:], mask[1] = False, False, False
        mask[0, 0, 5] = groups > 1
        yield usable_slots(mask)
        yield usable_slots(mask[:1])
    yield None


@pytest.mark.parametrize("usable", list(masks()))
@pytest.mark.parametrize("queries", [1, 4, 11])
def test_equals_autograd(small, queries, usable):
    heads, slope = given_heads(queries, 6)
    out, expected = BmmAttention.apply(*heads, usable), scaled_dot_product_attention(*heads, attn_mask=usable)
    assert_close(out, expected)
    for found, right in zip(gradients(out, heads, slope), gradients(expected, heads, slope), strict=True):
        assert_close(found, right)


def test_gradcheck(small):
    heads, _ = given_heads(5, 3)
    assert torch.autograd.gradcheck(lambda *x: BmmAttention.apply(*x, None), heads)


def test_rounding_in_bfloat16():
    """Of long sums of gradients: as far off float64's as what torch's fused attention gives."""
    heads, slope = given_heads(1_500, 40, torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in heads]
    right = gradients(scaled_dot_product_attention(*exact), exact, slope)
    ours = gradients(BmmAttention.apply(*heads, None), heads, slope)
    fused = gradients(scaled_dot_product_attention(*heads), heads, slope)
    for found, other, true in zip(ours, fused, right, strict=True):
        error, others = ((x.double() - true).norm() / true.norm() for x in (found, other))
        assert error < max(2e-2, 1.5 * others)


def test_it_has_no_second_derivative():
    heads, _ = given_heads(3, 3)
    out = BmmAttention.apply(*heads, None)
    first = torch.autograd.grad(out.square().sum(), heads, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


def test_where_it_is_taken():
    heads, _ = given_heads(3, 3, torch.bfloat16)
    with machine(slow_sdpa=True):
        assert taken("attention", AttentionCall(*heads)) == "bmm_training"
        assert taken("attention", AttentionCall(*(x.double() for x in heads))) == "sdpa"
        assert taken("attention", AttentionCall(*(x.detach() for x in heads))) == "bmm"
        with torch.no_grad():
            assert taken("attention", AttentionCall(*heads)) == "bmm"
    with machine():
        assert taken("attention", AttentionCall(*heads)) == "sdpa"


def test_a_layer_is_trained_through_it():
    """Under autocast; with dropout on the weights torch's own attention is taken."""
    torch.manual_seed(0)
    layer = LinformerAttention(12, 3, max_length=16, projected_length=4, dropout=0.1).eval()
    hidden = torch.randn(2, 16, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16), machine(slow_sdpa=True), listening() as heard:
        out = layer(hidden)
    out.float().square().sum().backward()
    found = {name: x.grad.clone() for name, x in layer.named_parameters()}
    assert "bmm_training" in [choice.kernel for choice in heard]
    layer.zero_grad()
    layer(hidden).square().sum().backward()
    for name, parameter in layer.named_parameters():
        if name != "key.bias":  # moves all logits alike, so that its gradient is 0
            assert (found[name] - parameter.grad).norm() < 0.05 * parameter.grad.norm(), name
    with torch.autocast("cpu", dtype=torch.bfloat16), machine(slow_sdpa=True), listening() as heard:
        layer.train()(hidden)
    assert "bmm_training" not in [choice.kernel for choice in heard]
