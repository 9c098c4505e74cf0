"""A long text attended some tokens at a time: the same as all at once, and where it is not done."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from longform.functional import window as dispatch
from longform.layers import attention as subject
from longform.layers import row_chunks, streaming
from longform.layers.attention import LinformerAttention
from strategies import generator, mask_rows, normal, seeds
from tolerances import assert_close

HIDDEN, HEADS, LONGEST, WINDOW = 12, 3, 64, 4


def layer(seed: int = 0, *, sinks: int = 1, budget: float | None = 5.0, **options) -> LinformerAttention:
    torch.manual_seed(seed)
    chosen = {"projection": "mean", "projected_length": 32, "attention_window": WINDOW, **options}
    made = LinformerAttention(
        HIDDEN, HEADS, max_length=LONGEST, sink_tokens=sinks, memory_budget=budget, **chosen
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(normal(generator(seed + parameter.numel()), *parameter.shape))
    return made.eval()


@pytest.fixture
def short_parts(monkeypatch):
    """Two blocks of queries at a time, from 17 tokens on."""
    monkeypatch.setattr(row_chunks, "LONG", 17)
    monkeypatch.setattr(streaming, "CPU_ROWS", 8)


@pytest.fixture
def streams(monkeypatch):
    """How many times a text went through some queries at a time."""
    calls = []
    monkeypatch.setattr(subject, "windowed_parts", lambda *given: calls.append(1) or streaming.windowed_parts(*given))
    return calls


def whole(module: LinformerAttention, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """By the path that takes gradients."""
    with torch.enable_grad():
        return module(hidden, mask).detach()


def masked(data, length: int, seed: int, kinds: tuple[str, ...]) -> tuple[Tensor, Tensor | None, Tensor]:
    """Hidden states of three documents, a mask of ``kinds`` or none, and the states with NaN in padding."""
    rows = [data.draw(mask_rows(length, kinds)) for _ in range(3)]
    mask = torch.tensor(rows) if data.draw(st.booleans()) else None
    hidden = normal(generator(seed), 3, length, HIDDEN)
    return hidden, mask, hidden.clone() if mask is None else hidden.masked_fill(mask[..., None] == 0, math.nan)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(17, LONGEST), st.data(), seeds, st.sampled_from([0, 1, 3, 5]), st.sampled_from([None, 3.5, 1e4]),
    st.booleans(),
)  # fmt: skip
def test_it_equals_all_queries_at_once(monkeypatch, short_parts, length, data, seed, sinks, budget, products):
    monkeypatch.setattr(dispatch, "products_are_faster", lambda *_: products)
    hidden, mask, dirty = masked(data, length, seed, ("full", "right", "empty"))
    module = layer(seed % 1000, sinks=sinks, budget=budget)
    with torch.no_grad():
        assert_close(module(dirty, mask), whole(module, hidden, mask))


def test_parts_may_be_shorter_than_a_block(monkeypatch, streams):
    monkeypatch.setattr(row_chunks, "LONG", 17)
    monkeypatch.setattr(streaming, "CPU_ROWS", 3)
    module, hidden = layer(), normal(generator(1), 2, 43, HIDDEN)
    with torch.no_grad():
        assert_close(module(hidden), whole(module, hidden, None))
    assert streams == [1]


def test_bfloat16(short_parts, streams):
    module, hidden = layer().to(torch.bfloat16), normal(generator(1), 2, 43, HIDDEN, dtype=torch.bfloat16)
    with torch.no_grad():
        out = module(hidden)
    assert out.dtype == torch.bfloat16
    expected = whole(module.double(), hidden.double(), None)
    assert (out.double() - expected).norm() < 0.02 * expected.norm()
    assert streams == [1]


ALONE = (
    {"projection": "linear", "sharing": "headwise"}, {"projection": "linear", "sharing": "key_value"},
    {"projection": "linear", "sharing": "none", "projected_length": [7, 5, 7]}, {"projection": "random"},
    {"projection": "mean", "sinks": 1}, {"projection": "mean", "projected_length": [9, 5, 9], "sharing": "none"},
    {"projection": "max", "sinks": 3}, {"projection": "convolution", "sinks": 1},
)  # fmt: skip


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(17, LONGEST), st.data(), seeds, st.sampled_from(ALONE))
def test_slots_alone_equal_all_queries_at_once(monkeypatch, short_parts, length, data, seed, options):
    """Without a window; the parts' own tokens may be overwritten as soon as the next part is asked for."""
    monkeypatch.setattr(subject, "rows_of_each", lambda batch: 6)
    hidden, mask, dirty = masked(data, length, seed, ("full", "right", "holes", "empty"))
    options = {"projected_length": 8, "sinks": 0, **options}
    module = layer(seed % 1000, attention_window=None, budget=None, **options)
    expected = whole(module, hidden, mask)
    with torch.no_grad():
        assert_close(module(dirty, mask), expected)
        residual = torch.randn_like(hidden)
        expected = expected + residual
        parts = module.in_parts(dirty, mask, residual=residual)
        assert parts is not None
        for where, part in parts:
            assert_close(part, expected[where])
            dirty[where] = residual[where] = math.inf


def test_a_window_reads_no_token_whose_output_was_given_out(short_parts):
    module, hidden = layer(), normal(generator(1), 3, 43, HIDDEN)
    mask = torch.arange(43) < torch.tensor([43, 30, 0])[:, None]
    residual = torch.randn_like(hidden)
    expected = whole(module, hidden, mask) + residual
    with torch.no_grad():
        parts = module.in_parts(hidden, mask, residual=residual)
        assert parts is not None
        seen = torch.zeros(3, 43, dtype=torch.int)
        for where, part in parts:
            assert_close(part, expected[where])
            hidden[where] = residual[where] = math.inf
            seen[where] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize(
    "options",
    [
        {"projection": "max"}, {"projection": "convolution"}, {"attention_window": None},
        {"projection": "mean", "projected_length": [32, 16, 32], "sharing": "none"},
    ],
)  # fmt: skip
def test_other_projections_take_the_whole_text(short_parts, streams, options):
    module, hidden = layer(budget=None, **options), normal(generator(1), 2, 43, HIDDEN)
    with torch.no_grad():
        assert_close(module(hidden), whole(module, hidden, None))
    assert not streams


def test_where_something_stands_in_the_way_the_text_is_whole(short_parts, streams):
    module, hidden = layer(), normal(generator(1), 2, 43, HIDDEN)
    module(hidden)  # parameters want gradients
    with torch.no_grad():
        module(hidden[:, :16])
        module(hidden, torch.ones(2, 43).index_fill(1, torch.tensor([7]), 0.0))  # a hole
        module(hidden, output_attentions=True)
        handle = module.query.register_forward_hook(lambda *_: None)
        module(hidden)
        handle.remove()
        module.train().dropout = 0.5
        module(hidden)
        assert not streams
        module.eval()(hidden)
    assert streams == [1]


@pytest.mark.parametrize(("window", "rows"), [(64, 1024), (96, 1056), (1024, 1024), (5000, 5000)])
def test_queries_at_a_time_are_whole_blocks(monkeypatch, window, rows):
    monkeypatch.setattr(streaming, "CPU_ROWS", 1024)
    assert streaming.queries_at_a_time(window) == rows
