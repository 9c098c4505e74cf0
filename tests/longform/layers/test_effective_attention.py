"""map @ V is the layer's context, so output(map @ V) is the layer; the map beside its twin and on hand-made weights."""

import pytest
import torch
from attention_kinds import KINDS, Layer
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import (
    reference_effective_map,
    reference_effective_map_of_means,
    reference_length,
    reference_slot_size,
)
from torch import Tensor, nn

from longform.errors import InputError
from longform.layers.effective_attention import effective_attention, effective_map, near_map, value_rows
from longform.layers.options import Projection
from longform.layers.sequence_projection import make_projection
from strategies import Text, away_from_zero, generator, normal, seeds, texts
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
    shared = layer.given._replace(global_attention_mask=layer.marks(hidden))
    found = effective_attention(layer.layer, hidden, text.mask, shared=shared)
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


HEADS, SLOTS, BASE = 2, 4, 3
TEXTS = texts(lengths=st.integers(1, SLOTS * BASE), batch=2, kinds=("full", "right", "holes"))


def rows_of(
    kind: str | Projection, mask: Tensor, matrix: Tensor | None = None, *, slots: int = SLOTS, heads: int = HEADS,
    longest: int = SLOTS * BASE, **options: bool,
) -> Tensor:  # fmt: skip
    """What makes slots of the values of hidden states of 0, with ``matrix`` as F."""
    sizes = {"hidden_size": 4, "heads": heads, "head_dim": 4, "max_length": longest, "slots": slots}
    made = make_projection(kind, **sizes, **options).double()
    if matrix is not None:
        made.value_projection.matrix = nn.Parameter(matrix)
    return value_rows(made, mask, torch.zeros(*mask.shape, 4, dtype=torch.float64), heads).detach()


def stacked(text: Text, one):
    return torch.stack([torch.stack([one(b, i) for i in range(HEADS)]) for b in range(text.batch)])


@settings(max_examples=40)
@given(TEXTS, seeds)
@pytest.mark.parametrize("groups", [1, HEADS])
def test_map_of_a_dense_projection_equals_the_twin(groups, text: Text, seed: int):
    source = generator(seed)
    matrix = away_from_zero(source, groups, SLOTS, SLOTS * BASE)
    weights = normal(source, text.batch, HEADS, text.length, SLOTS).softmax(dim=-1)
    rows = rows_of(Projection("linear", sharing="none" if groups > 1 else "headwise"), text.valid, matrix)

    def one(b, i):
        return reference_effective_map(weights[b, i], matrix[i % groups], text.valid[b].tolist())

    assert_close(effective_map(weights, rows), stacked(text, one))


@settings(max_examples=40)
@given(TEXTS, seeds)
def test_map_of_means_equals_the_twin(text: Text, seed: int):
    rows = rows_of("mean", text.valid)
    weights = normal(generator(seed), text.batch, HEADS, text.length, rows.shape[2]).softmax(dim=-1)

    def one(b, i):
        valid = text.valid[b].tolist()
        size = reference_slot_size(reference_length(valid), base_size=BASE, slots=SLOTS)
        return reference_effective_map_of_means(weights[b, i], valid, size=size)

    assert_close(effective_map(weights, rows), stacked(text, one))


def test_means_as_a_matrix():
    mask = torch.tensor([[1, 1, 1, 0, 1], [1, 0, 0, 0, 0]]).bool()
    first = [[0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    second = [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    expected = torch.tensor([[first], [second]], dtype=torch.float64)
    for kind, heads in (("mean", 1), ("weighted_mean", 2)):  # of hidden states of 0
        found = rows_of(kind, mask, slots=3, heads=heads, longest=5, fixed_runs=True)
        assert_close(found, expected.expand(-1, heads, -1, -1) if kind == "weighted_mean" else expected)


@pytest.mark.parametrize("bias", [False, True])  # which has no row
def test_dense_rows_are_rescaled_and_blank_on_padding(bias):
    mask, matrix = torch.tensor([[True, True, False]]), torch.tensor([[[3.0, 0.0, 4.0]]], dtype=torch.float64)
    rows = rows_of(Projection("linear", bias=bias), mask, matrix, slots=1, heads=1, longest=3)
    assert_close(rows, torch.tensor([[[[5.0, 0.0, 0.0]]]], dtype=torch.float64))  # 3 * 5 / 3


def test_near_weights_stand_at_their_tokens():
    """Window 2, three tokens: the second block's query sees tokens 0 to 2."""
    weights = torch.tensor([[0, 0, 1, 2, 3, 0], [0, 0, 4, 5, 6, 0], [7, 8, 9, 0, 0, 0]], dtype=torch.float64)
    found = near_map(weights[None, None], window=2)
    assert found[0, 0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_widths_that_do_not_agree_are_named():
    with pytest.raises(InputError, match=r"7 wide.* 4 slots .*window=None gives 0"):
        effective_map(torch.zeros(1, 1, 5, 7), torch.zeros(1, 1, 4, 5))
    with pytest.raises(InputError, match="window=2 gives 6"):
        effective_map(torch.zeros(1, 1, 5, 7), torch.zeros(1, 1, 4, 5), window=2)
