"""A long text attended some tokens at a time: the same as all at once, and where it is not done."""

import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_kinds import model, text
from torch import Tensor

from longform.layers import streaming
from longform.layers.attention import LinformerAttention
from longform.layers.block import Block
from longform.layers.options import Projection
from longform.layers.self_attention import Shared
from longform.layers.streaming import assembled, attention_in_parts
from longform.models.modeling_linformer import LinformerModel
from strategies import generator, mask_rows, normal, seeds
from tolerances import assert_close

HIDDEN, HEADS, LONGEST, WINDOW = 12, 3, 64, 4


def layer(seed: int = 0, *, sinks: int = 1, budget: float | None = 5.0, **options) -> LinformerAttention:
    torch.manual_seed(seed)
    chosen = {"projected_length": 32, "attention_window": WINDOW, **options}
    kind, sharing = chosen.pop("projection", "mean"), chosen.pop("sharing", "headwise")
    projection = Projection(kind, sharing, "normal", sink_tokens=sinks, memory_budget=budget)
    made = LinformerAttention(HIDDEN, HEADS, max_length=LONGEST, projection=projection, **chosen).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(normal(generator(seed + parameter.numel()), *parameter.shape))
    return made.eval()


@pytest.fixture
def short_parts(monkeypatch):
    """Two blocks of queries at a time, from 17 tokens on."""
    monkeypatch.setattr(streaming, "LONG", 17)
    monkeypatch.setattr(streaming, "CPU_ROWS", 8)


def in_parts(module: LinformerAttention, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
    """All parts together, of what must be formed in parts."""
    parts = attention_in_parts(module, hidden, mask, Shared(), torch.zeros_like(hidden))
    assert parts is not None
    return assembled(parts, hidden.shape[:2])


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
    st.sampled_from([0, 0, 1, 3, 32]),
)  # fmt: skip
def test_it_equals_all_queries_at_once(short_parts, length, data, seed, sinks, budget, selected):
    hidden, mask, dirty = masked(data, length, seed, ("full", "right", "empty"))
    module = layer(seed % 1000, sinks=sinks, budget=budget, selected_slots=selected)
    with torch.no_grad():
        assert_close(in_parts(module, dirty, mask), whole(module, hidden, mask))


@pytest.mark.parametrize("selected", [0, 2])
def test_parts_may_be_shorter_than_a_block(monkeypatch, selected):
    monkeypatch.setattr(streaming, "LONG", 17)
    monkeypatch.setattr(streaming, "CPU_ROWS", 3)
    module, hidden = layer(selected_slots=selected), normal(generator(1), 2, 43, HIDDEN)
    with torch.no_grad():
        assert_close(in_parts(module, hidden), whole(module, hidden, None))


def test_bfloat16(short_parts):
    module, hidden = layer().to(torch.bfloat16), normal(generator(1), 2, 43, HIDDEN, dtype=torch.bfloat16)
    with torch.no_grad():
        out = in_parts(module, hidden)
    assert out.dtype == torch.bfloat16
    expected = whole(module.double(), hidden.double(), None)
    assert (out.double() - expected).norm() < 0.02 * expected.norm()


ALONE = (
    {"projection": "linear", "sharing": "headwise"}, {"projection": "linear", "sharing": "key_value"},
    {"projection": "linear", "sharing": "none", "projected_length": 7}, {"projection": "random"},
    {"projection": "mean", "sinks": 1}, {"projection": "mean", "projected_length": 9},
    {"projection": "max", "sinks": 3}, {"projection": "convolution", "sinks": 1},
)  # fmt: skip


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(17, LONGEST), st.data(), seeds, st.sampled_from(ALONE))
def test_slots_alone_equal_all_queries_at_once(monkeypatch, short_parts, length, data, seed, options):
    """Without a window; the parts' own tokens may be overwritten as soon as the next part is asked for."""
    monkeypatch.setattr(streaming, "rows_of_each", lambda batch: 6)
    hidden, mask, dirty = masked(data, length, seed, ("full", "right", "holes", "empty"))
    options = {"projected_length": 8, "sinks": 0, **options}
    module = layer(seed % 1000, attention_window=None, budget=None, **options)
    expected = whole(module, hidden, mask)
    with torch.no_grad():
        assert_close(in_parts(module, dirty, mask), expected)
        residual = torch.randn_like(hidden)
        expected = expected + residual
        parts = attention_in_parts(module, dirty, mask, Shared(), residual)
        assert parts is not None
        for where, part in parts:
            assert_close(part, expected[where])
            dirty[where] = residual[where] = math.inf


@pytest.mark.parametrize("selected", [0, 2])
def test_a_window_reads_no_token_whose_output_was_given_out(short_parts, selected):
    module, hidden = layer(selected_slots=selected), normal(generator(1), 3, 43, HIDDEN)
    mask = torch.arange(43) < torch.tensor([43, 30, 0])[:, None]
    residual = torch.randn_like(hidden)
    expected = whole(module, hidden, mask) + residual
    with torch.no_grad():
        parts = attention_in_parts(module, hidden, mask, Shared(), residual)
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
        {"projection": "max"}, {"projection": "convolution"},
        {"projection": "mean", "projected_length": [32, 16, 32], "sharing": "none"},
    ],
)  # fmt: skip
def test_other_projections_take_the_whole_text(short_parts, options):
    module, hidden = layer(budget=None, **options), normal(generator(1), 2, 43, HIDDEN)
    with torch.no_grad():
        assert attention_in_parts(module, hidden, None, Shared(), hidden) is None
        assert_close(module(hidden), whole(module, hidden, None))


def test_where_something_stands_in_the_way_the_text_is_whole(short_parts):
    module, hidden = layer(), normal(generator(1), 2, 43, HIDDEN)
    with torch.no_grad():
        assert attention_in_parts(module, hidden[:, :16], None, Shared(), hidden) is None
        hole = torch.ones(2, 43).index_fill(1, torch.tensor([7]), 0.0)
        assert attention_in_parts(module, hidden, hole, Shared(), hidden) is None
        handle = module.key.register_forward_hook(lambda *_: None)
        assert attention_in_parts(module, hidden, None, Shared(), hidden) is None
        handle.remove()
        assert attention_in_parts(module, hidden, None, Shared(), hidden) is not None


@pytest.mark.parametrize("kind", ["linear", "mean-window-sinks", "mean-window-selection"])
def test_the_encoder_decides_once(short_parts, kind):
    """Not with a gradient, weights to return, dropout, a hook, or a layer of somebody else's."""
    made, given = model(kind, LinformerModel), text(2, 32)
    with patch.object(Block, "in_parts", autospec=True, side_effect=Block.in_parts) as taken:
        made(**given)
        with torch.no_grad():
            made(**given, output_attentions=True)
            made.train()(**given)
            handle = made.eval().encoder.layers[0].attention.query.register_forward_hook(lambda *_: None)
            made(**given)
            handle.remove()
            assert taken.call_count == 0
            made(**given)
    assert taken.call_count == made.config.num_hidden_layers


@pytest.mark.parametrize(("window", "rows"), [(64, 1024), (96, 1056), (1024, 1024), (5000, 5000)])
def test_queries_at_a_time_are_whole_blocks(monkeypatch, window, rows):
    monkeypatch.setattr(streaming, "CPU_ROWS", 1024)
    assert streaming.queries_at_a_time(window) == rows
