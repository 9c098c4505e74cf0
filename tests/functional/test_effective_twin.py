import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import (
    reference_effective_map,
    reference_effective_map_of_means,
    reference_length,
    reference_slot_size,
)

from longform.layers.effective_attention import effective_map, value_rows
from longform.layers.geometry import Projection
from longform.layers.sequence_projection import make_projection
from strategies import Text, away_from_zero, generator, normal, seeds, texts
from tolerances import assert_close

HEADS, SLOTS, BASE = 2, 4, 3
TEXTS = texts(lengths=st.integers(1, SLOTS * BASE), batch=2, kinds=("full", "right", "holes"))


def rows_of(kind: str | Projection, text: Text, matrix: torch.Tensor | None = None) -> torch.Tensor:
    sizes = {"hidden_size": 4, "heads": HEADS, "head_dim": 4, "max_length": SLOTS * BASE, "slots": SLOTS}
    made = make_projection(kind, **sizes).double()
    if matrix is not None:
        made.value_projection.matrix = torch.nn.Parameter(matrix)
    return value_rows(made, text.checked, torch.zeros(text.batch, text.length, 4, dtype=torch.float64), HEADS)


def stacked(text: Text, one):
    return torch.stack([torch.stack([one(b, i) for i in range(HEADS)]) for b in range(text.batch)])


@settings(max_examples=40)
@given(TEXTS, seeds)
@pytest.mark.parametrize("groups", [1, HEADS])
def test_map_of_a_dense_projection(groups, text: Text, seed: int):
    source = generator(seed)
    matrix = away_from_zero(source, groups, SLOTS, SLOTS * BASE)
    weights = normal(source, text.batch, HEADS, text.length, SLOTS).softmax(dim=-1)
    rows = rows_of(Projection("linear", sharing="none" if groups > 1 else "headwise"), text, matrix).detach()

    def one(b, i):
        return reference_effective_map(weights[b, i], matrix[i % groups], text.valid[b].tolist())

    found = effective_map(weights, rows)
    assert_close(found, stacked(text, one))


@settings(max_examples=40)
@given(TEXTS, seeds)
def test_map_of_means(text: Text, seed: int):
    rows = rows_of("mean", text)
    weights = normal(generator(seed), text.batch, HEADS, text.length, rows.shape[2]).softmax(dim=-1)

    def one(b, i):
        valid = text.valid[b].tolist()
        size = reference_slot_size(reference_length(valid), base_size=BASE, slots=SLOTS)
        return reference_effective_map_of_means(weights[b, i], valid, size=size)

    assert_close(effective_map(weights, rows), stacked(text, one))
