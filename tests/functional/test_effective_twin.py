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

from longform.functional.dense import select_rows
from longform.functional.slots import divisors, make_slots
from longform.layers.effective_attention import dense_value_rows, effective_map, mean_value_rows
from strategies import Text, away_from_zero, generator, normal, seeds, texts
from tolerances import assert_close

HEADS, SLOTS, BASE = 2, 4, 3
TEXTS = texts(lengths=st.integers(1, SLOTS * BASE), batch=2, kinds=("full", "right", "holes"))


def stacked(text: Text, one):
    return torch.stack([torch.stack([one(b, i) for i in range(HEADS)]) for b in range(text.batch)])


@settings(max_examples=40)
@given(TEXTS, seeds)
@pytest.mark.parametrize("groups", [1, HEADS])
def test_map_of_a_dense_projection(groups, text: Text, seed: int):
    source = generator(seed)
    matrix = away_from_zero(source, groups, SLOTS, SLOTS * BASE)
    weights = normal(source, text.batch, HEADS, text.length, SLOTS).softmax(dim=-1)
    rows = dense_value_rows(select_rows(matrix, text.checked, length=text.length), text.checked)

    def one(b, i):
        return reference_effective_map(weights[b, i], matrix[i % groups], text.valid[b].tolist())

    found = effective_map(weights, rows)
    assert_close(found.expand(text.batch, HEADS, -1, -1), stacked(text, one))


@settings(max_examples=40)
@given(TEXTS, seeds)
def test_map_of_means(text: Text, seed: int):
    device = torch.device("cpu")
    slots = make_slots(
        text.checked, batch=text.batch, length=text.length, device=device, sizes=divisors(BASE), slots=SLOTS
    )
    made = slots.count.shape[1]
    weights = normal(generator(seed), text.batch, HEADS, text.length, made).softmax(dim=-1)

    def one(b, i):
        valid = text.valid[b].tolist()
        size = reference_slot_size(reference_length(valid), base_size=BASE, slots=SLOTS)
        return reference_effective_map_of_means(weights[b, i], valid, size=size)

    rows = mean_value_rows(slots, text.checked, length=text.length, dtype=torch.float64)
    assert_close(effective_map(weights, rows), stacked(text, one))
