"""The window without gradients: against the path with gradients, and beside NaN; test_window.py has the twin."""

import math
from unittest.mock import patch

import pytest
import torch
from kernel_tables import machine, only
from window_cases import Inputs

from longform.functional.dispatch import listening
from longform.functional.masks import text_lengths
from longform.functional.slots import Slots
from longform.functional.window import document_attention, single_tokens, windowed_attention
from longform.functional.window import sdpa_inference as subject
from longform.functional.window.compiled import CompiledDocument
from longform.layers.attention import LinformerAttention
from longform.layers.options import Projection
from strategies import Text
from tolerances import assert_close


def long_text(
    window: int, size: int, lengths: list[int], width: int, dtype: torch.dtype = torch.float64, poison: float = 0.0,
    selected: int = 0,
) -> Inputs:  # fmt: skip
    """Documents long enough for chunks of many blocks; ``poison`` stands in the padding of queries."""
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    case = window, size, True, -(-width // size), Text(len(lengths), width, mask)
    inputs = Inputs(case, 5, dtype, sinks=1, selected=selected)
    with torch.no_grad():
        inputs.heads[0] = torch.where(inputs.defined, inputs.heads[0], poison).requires_grad_()
    return inputs


@pytest.mark.parametrize("chunk", [1, 3, 16])
@pytest.mark.parametrize("last", [-1, 0, 1])
@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 8, 23])
@pytest.mark.parametrize("selected", [0, 3])
def test_chunks_of_blocks_equal_the_path_with_gradients(monkeypatch, selected, blocks, last, chunk):
    monkeypatch.setattr(subject, "CHUNK", chunk)
    length = 4 * blocks + last
    given = 4, 2, [length, max(1, length - 4), max(1, length // 3)], length + 3
    inputs = long_text(*given, poison=math.nan, selected=selected)
    with_gradient = long_text(*given, selected=selected)
    out = inputs.fast("without a gradient", 5.0)[0]
    assert (out[~inputs.defined.expand_as(out)] == 0).all()
    assert_close(out, with_gradient.fast("sdpa", 5.0)[0] * inputs.defined)


@pytest.mark.parametrize("selected", [0, 2])
@pytest.mark.parametrize("bias_size", [1, 2**22])
def test_bfloat16(monkeypatch, bias_size, selected):
    monkeypatch.setattr(subject, "BIAS_SIZE", bias_size)
    inputs = long_text(8, 4, [61, 40], 64, torch.bfloat16, selected=selected)
    with only(document="sdpa"):
        out = inputs.fast("without a gradient", None)[0]
    assert out.dtype == torch.bfloat16
    assert_close(torch.where(inputs.defined, out, 0.0), torch.where(inputs.defined, inputs.twin(None), 0.0))


def test_it_serves_padding_on_the_right_and_no_gradient():
    inputs = long_text(4, 2, [20, 13], 20)
    heads, memory = ([x.detach() for x in some] for some in (inputs.heads, inputs.memory))
    holes = inputs.mask.clone()
    holes[0, 3] = False

    def attend(mask=inputs.mask, **options):
        windowed_attention(*heads, lambda: Slots(*memory, None, inputs.slots), window=4, mask=mask, **options)

    with listening() as heard:
        inputs.fast("sdpa", None)
        inputs.fast("without a gradient", None)[0]
        attend()
        attend(holes)
        attend(output_attentions=True)
        attend(dropout=0.5)
    taken = [choice.kernel for choice in heard if choice.operation == "window"]
    assert taken == ["sdpa_training", "documents", "documents", "sdpa_training", "formula"]


def test_a_text_of_any_length_has_the_compiled_kernel():
    query, key, value = (torch.zeros(1, 2**14 + 1, 32, dtype=torch.bfloat16) for _ in range(3))
    with machine("avx512"):
        assert document_attention(query, key, value, None) is CompiledDocument


def test_lengths_of_texts():
    rows = [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
    assert text_lengths(torch.tensor(rows).bool(), batch=3, length=3) == [2, 0, 3]
    assert text_lengths(torch.tensor([[0, 1, 1]]).bool(), batch=1, length=3) is None
    assert text_lengths(None, batch=2, length=3) == [3, 3]


@pytest.mark.parametrize("projection", ["mean", "max", "convolution"])
@pytest.mark.parametrize("budget", [None, 5.0])
@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shortest", [13, 2])
def test_slots_of_single_tokens(monkeypatch, projection, budget, sinks, with_bias, shortest):
    """A short text in a long model, where a slot is a token or, convolved, a token and its weight."""
    size = 1 if projection == "convolution" else 4
    made = LinformerAttention(
        6, 2, max_length=24 * size, projected_length=24, attention_window=4,
        projection=Projection(projection, sink_tokens=sinks, memory_budget=budget),
    ).double()  # fmt: skip
    with torch.no_grad():
        for parameter in made.parameters() if with_bias else made.groups.parameters():
            parameter.add_(torch.randn_like(parameter))
    single, calls = single_tokens.slot_attention, []
    monkeypatch.setattr(single_tokens, "slot_attention", lambda *x, **named: calls.append(1) or single(*x, **named))
    hidden, mask = torch.randn(2, 22, 6).double(), torch.arange(22) < torch.tensor([[22], [shortest]])
    with torch.no_grad(), patch.object(made.groups[0], "from_heads", wraps=made.groups[0].from_heads) as formed:
        out = made(hidden, mask)
    assert_close(out[mask], made(hidden, mask)[mask])
    assert (formed.call_count, len(calls)) == ((1, 0) if projection == "convolution" else (0, 2))
