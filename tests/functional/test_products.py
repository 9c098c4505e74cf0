"""Attention by plain products: its algorithm in float64 against the twins, its rounding in bfloat16."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine, only, taken
from torch.nn.functional import scaled_dot_product_attention
from window_cases import Inputs, cases

from longform.functional.attention import bmm as subject
from longform.functional.attention import slot_attention, usable_slots
from longform.functional.attention.bmm import infer
from longform.functional.attention.call import AttentionCall
from longform.functional.window import bmm as window_bmm
from longform.functional.window import single_tokens
from longform.functional.window.bmm import rounded_bias
from longform.layers.attention import LinformerAttention
from strategies import Text, generator, normal, seeds
from tolerances import assert_close

BUDGETS = st.sampled_from([None, 1.0, 3.5, 1e4])


def given_heads(queries: int, keys: int, dtype: torch.dtype = torch.float64, heads: int = 3):
    source, sizes = generator(1), (queries, keys, keys)
    return [normal(source, 2, n, heads, 5, dtype=dtype).transpose(1, 2) for n in sizes]


@pytest.fixture
def small(monkeypatch):
    """Few queries and few heads at a time."""
    monkeypatch.setattr(subject, "LOGITS", 40)
    monkeypatch.setattr(subject, "ROWS", 4)


@pytest.fixture
def always():
    """Products whatever the dtype and the machine."""
    with only(document="bmm"):
        yield


def attention_by_products(query, key, value, usable):
    return infer(AttentionCall(query, key, value, usable))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 7), (11, 2), (9, 9)])
def test_equals_fused_attention(small, queries, keys, dtype):
    heads = given_heads(queries, keys, dtype)
    out = attention_by_products(*heads, None)
    assert out.dtype == dtype
    assert_close(out, scaled_dot_product_attention(*(x.double() for x in heads)))


@pytest.mark.parametrize("groups", [1, 3])
def test_hidden_slots(small, groups):
    """In the middle, at the end, and all of them: then slot 0 is seen."""
    heads, mask = given_heads(5, 6), torch.ones(2, groups, 6, dtype=torch.bool)
    mask[0, :, 2], mask[0, :, 4:], mask[1] = False, False, False
    mask[0, 0, 5] = groups > 1
    usable = usable_slots(mask)
    assert_close(attention_by_products(*heads, usable), scaled_dot_product_attention(*heads, attn_mask=usable))
    one = usable[:1]  # the same for every document
    assert_close(attention_by_products(*heads, one), scaled_dot_product_attention(*heads, attn_mask=one))


@settings(max_examples=60)
@given(cases(kinds=("full", "right", "empty")), seeds, BUDGETS, st.sampled_from([0, 0, 1, 3]))
def test_window_equals_the_twin(always, case, seed, budget, sinks):
    inputs = Inputs(case, seed, sinks=sinks)
    with torch.no_grad():
        out = inputs.fast("sdpa", budget)[0]
    assert_close(out, torch.where(inputs.defined, inputs.twin(budget), 0.0))


@pytest.mark.parametrize("sinks", [0, 1, 5])
@pytest.mark.parametrize("budget", [None, 5.0])
@pytest.mark.parametrize(("base", "length"), [(1, 37), (2, 12), (2, 47), (4, 48), (4, 61)])
@pytest.mark.parametrize("whole", [32, 3])
def test_moving_keys_equal_the_path_with_gradients(always, small, monkeypatch, base, length, budget, sinks, whole):
    monkeypatch.setattr(window_bmm, "VECTOR_WIDTH", whole)
    mask = (torch.arange(64) < torch.tensor([length, length // 2])[:, None]).long()
    inputs = Inputs((4, base, False, -(-64 // base), Text(2, 64, mask)), 3, sinks=sinks)
    with torch.no_grad():
        out = inputs.fast("sdpa", budget)[0]
    assert_close(out, inputs.fast("sdpa", budget)[0])


@pytest.mark.parametrize("projection", ["mean", "max", "convolution"])
@pytest.mark.parametrize("budget", [None, 5.0])
@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shortest", [13, 2])
@pytest.mark.parametrize("products", [True, False])
def test_slots_of_single_tokens(small, monkeypatch, products, projection, budget, sinks, with_bias, shortest):
    """A short text in a long model, where a slot is a token or, convolved, a token and its weight."""
    size = 1 if projection == "convolution" else 4
    made = LinformerAttention(
        6, 2, max_length=24 * size, projected_length=24, projection=projection, attention_window=4,
        memory_budget=budget, sink_tokens=sinks,
    ).double()  # fmt: skip
    with torch.no_grad():
        for parameter in made.parameters() if with_bias else made.groups.parameters():
            parameter.add_(torch.randn_like(parameter))
    single, calls = single_tokens.slot_attention, []
    monkeypatch.setattr(single_tokens, "slot_attention", lambda *x, **named: calls.append(1) or single(*x, **named))
    hidden, mask = torch.randn(2, 22, 6).double(), torch.arange(22) < torch.tensor([[22], [shortest]])
    kernels = only(attention="bmm", document="bmm") if products else only(attention="sdpa", document="sdpa")
    formed = patch.object(made.groups[0], "from_heads", wraps=made.groups[0].from_heads)
    with torch.no_grad(), formed as formed, kernels:
        out = made(hidden, mask)
    assert_close(out[mask], made(hidden, mask)[mask])
    assert (formed.call_count, len(calls)) == ((1, 0) if projection == "convolution" else (0, 2))


@pytest.mark.parametrize("bias", [None, -1e4])
def test_without_a_bias_or_with_the_memory_off(always, bias):
    inputs = Inputs((2, 2, True, 8, Text(1, 15, None)), 3)
    inputs.bias = bias if bias is None else torch.full_like(inputs.bias, bias)
    with torch.no_grad():
        out = inputs.fast("sdpa", None)[0]
    assert_close(out, inputs.fast("sdpa", None)[0])


@pytest.mark.parametrize("budget", [None, 20.0])
def test_window_in_bfloat16(always, budget):
    inputs = Inputs((8, 4, True, 16, Text(1, 61, None)), 5, torch.bfloat16, sinks=1)
    with torch.no_grad():
        out = inputs.fast("sdpa", budget)[0]
    assert_close(out, inputs.twin(budget))


def test_rounding_leaves_the_usual_slot_its_weight():
    """log 3 is not a bfloat16; tokens and slots are shifted together instead."""
    logits = torch.tensor([0.0, *[3.0] * 5, 2.0]).log()
    logits[0] = -torch.inf
    bias = torch.tensor([0.3, -0.7, -1e4])
    made = rounded_bias(logits, bias, near=2, dtype=torch.bfloat16)
    assert made.shape == (3, 1, 2 + 7)
    assert (made[:, 0, 2] == -torch.inf).all()
    difference = made[:2, 0, 3:].double() - made[:2, 0, :1].double()
    exact = (logits[1:] + bias[:2, None]).double()
    assert (difference - exact)[:, :5].abs().max() < 1e-5 < (exact[0, 0].bfloat16() - exact[0, 0]).abs()
    assert made[2, 0, 0].abs() < 0.02
    assert rounded_bias(logits[:0], bias, near=2, dtype=torch.bfloat16) is None


def test_it_serves_where_it_is_faster():
    heads = given_heads(5, 6, torch.bfloat16)
    with machine(slow_sdpa=True):
        assert taken("attention", AttentionCall(*heads)) == "bmm"
        assert taken("attention", AttentionCall(*(x.float() for x in heads))) == "sdpa"
        assert taken("attention", AttentionCall(heads[0].requires_grad_(), *heads[1:])) == "bmm_training"
    with machine(slow_sdpa=True), torch.no_grad():
        assert taken("attention", AttentionCall(*heads)) == taken("document", AttentionCall(*heads)) == "bmm"
        plain = scaled_dot_product_attention(*heads)
        by_products = attention_by_products(*heads, None)
        assert torch.equal(slot_attention(*heads)[0], by_products)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(slot_attention(*heads)[0], by_products)
        assert torch.equal(slot_attention(*heads, dropout=1.0)[0], torch.zeros_like(plain))
    with machine(), torch.no_grad():
        assert taken("attention", AttentionCall(*heads)) == "sdpa"
        assert torch.equal(slot_attention(*heads)[0], plain)
