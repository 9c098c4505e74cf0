"""Window and memory trained through by the compiled kernels, by this machine's units and by loops, against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine

from longform.functional import dispatch
from longform.functional.slots import Slots, divisors, leading_tokens, make_runs, with_exact_runs
from longform.functional.window import compiled as window_compiled
from longform.functional.window import windowed_attention
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16
pytestmark = pytest.mark.usefixtures("units", "with_amx")


@pytest.fixture
def with_amx():
    with machine("amx"):
        yield


@pytest.fixture
def heard():
    """What was chosen so far."""
    with dispatch.listening() as choices:
        yield choices


def served(heard):
    return any(choice[:2] == ("window", "compiled_training") for choice in heard)


def given_text(lengths, *, heads=3, dim=32, slots=12, width=16, sinks=0, seed=0):
    """Queries, keys, values, slots and biases of texts of these lengths, the mask, and the output's gradient."""
    batch, length, source = len(lengths), max(lengths), generator(seed)
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    mask = None if mask.all() else mask
    size = -(-length // slots)
    sizes = tuple(s for s in divisors(-(-size // 4) * 4) if width % s == 0)
    shape = {"batch": batch, "length": length, "device": torch.device("cpu")}
    exact = leading_tokens(mask, sinks=sinks, **shape)
    runs = make_runs(mask, exact.rest, sizes=sizes, slots=-(-length // sizes[-1]), **shape)
    counted = with_exact_runs(runs, exact)
    sizes = (length, length, length, counted.count.shape[1], counted.count.shape[1])
    given = [normal(source, batch, n, heads, dim, dtype=HALF).transpose(1, 2) for n in sizes]
    slope = normal(source, batch, length, heads, dim, dtype=HALF).transpose(1, 2) * length**-0.5
    slope = slope if mask is None else slope * mask[:, None, :, None]
    return given, normal(source, heads, dtype=torch.float32), counted, mask, slope


def outcome(given, bias, slots, mask, slope, dtype=HALF, **options):
    """The output and the gradients of all six."""
    own = [x.detach().to(dtype).requires_grad_() for x in given]
    weight = bias.detach().to(torch.float64 if dtype == torch.float64 else torch.float32).requires_grad_()
    memory = Slots(*own[3:], None, slots)
    out, _ = windowed_attention(*own[:3], lambda: memory, memory_bias=weight, mask=mask, **options)
    return [out, *torch.autograd.grad(out, [*own, weight], slope.to(dtype))]


def check(text, heard, **options):
    ours = outcome(*text, **options)
    assert served(heard)
    exact = outcome(*text, dtype=torch.float64, output_attentions=True, **options)
    for found, right in zip(ours, exact, strict=True):
        assert_close(found.to(HALF), right)
    return ours


@pytest.mark.parametrize("dim", [32, 64])
@pytest.mark.parametrize(("length", "width"), [(40, 16), (130, 32), (200, 48), (257, 64), (300, 8)])
def test_equals_autograd_in_float64(length, width, dim, heard):
    check(given_text([length] * 2, width=width, dim=dim), heard, window=width)


def test_a_text_may_be_longer_than_what_a_query_sees(heard, monkeypatch):
    """Only the window's keys and the slots count against the kernels' limit."""
    monkeypatch.setattr(window_compiled, "MOST_TRAINED_KEYS", 128)
    check(given_text([200] * 2), heard, window=16)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 220), min_size=1, max_size=3), st.sampled_from([8, 16, 48]), st.integers(0, 3), seeds)
def test_any_lengths(lengths, width, sinks, seed):
    lengths[0] = max(lengths[0], 20)
    text = given_text(lengths, width=width, sinks=sinks, seed=seed)
    with dispatch.listening() as heard:
        check(text, heard, window=width, memory_budget=30.0)


def test_padding_has_neither_output_nor_gradient_and_may_hold_anything(heard):
    text = given_text([90, 150, 17])
    ours = check(text, heard, window=16)
    given, _, _, mask, slope = text
    for x in ours[:4]:
        assert not x.transpose(1, 2)[~mask].any()
    for x in (*given[:3], slope):
        x.transpose(1, 2)[~mask] = torch.nan
    for x, y in zip(outcome(*text, window=16), ours, strict=True):
        assert torch.equal(x, y)


def test_an_empty_document(heard):
    text = given_text([0, 60])
    ours = outcome(*text, window=16)
    assert served(heard)
    for x in ours[:6]:
        assert not x[0].any()
        assert x[1].any()


def test_a_document_alone_has_the_gradient_it_has_in_a_batch(heard):
    given, bias, slots, _, slope = given_text([150] * 2)
    together = outcome(given, bias, slots, None, slope, window=16)
    one = slots._replace(count=slots.count[:1], size=slots.size[:1], exact=slots.exact[:1])
    alone = outcome([x[:1] for x in given], bias, one, None, slope[:1], window=16)
    for x, y in zip(alone[:6], together[:6], strict=True):
        assert torch.equal(x, y[:1])


def test_where_other_ways_are_taken(heard):
    """Padding between tokens, other dtypes, long texts' windows that hold too many keys."""
    given, bias, slots, _, slope = given_text([150])
    holes = torch.ones(1, 150, dtype=torch.bool)
    holes[0, 40] = False
    kept = [x * holes[:, None, :, None] for x in given[:3]] + given[3:]
    found = outcome(kept, bias, slots, holes, slope * holes[:, None, :, None], window=16)
    right = outcome(kept, bias, slots, holes, slope * holes[:, None, :, None], dtype=torch.float64, window=16)
    for x, y in zip(found, right, strict=True):
        assert_close(x.to(HALF), y)
    heard.clear()
    outcome(given, bias, slots, None, slope, dtype=torch.float32, window=16)
    outcome(given, bias, slots, None, slope, window=1376)
    assert not served(heard)
