"""The spectrum against numpy's float64 SVD and its definitions, on awkward sizes and masks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference.spectrum import (
    reference_cumulative_spectrum,
    reference_effective_rank,
    reference_map_cosine,
    reference_singular_values,
    reference_smallest_index,
)

from longform.errors import InputError
from longform_lab.spectrum.singular_values import (
    cumulative_spectrum,
    effective_rank,
    map_directions,
    singular_values,
    smallest_index,
    valid_part,
)


def attention(heads, length, mask, *, sharpness=3.0):
    logits = sharpness * torch.randn(heads, length, length)
    return logits.masked_fill(~mask, -torch.inf).softmax(-1)


@given(
    length=st.integers(2, 13), heads=st.integers(1, 3), seed=st.integers(0, 99), share=st.floats(0.05, 1.0),
    sharpness=st.sampled_from([0.01, 1.0, 20.0]),
)  # fmt: skip
def test_every_number_is_its_twins(length, heads, seed, share, sharpness):
    torch.manual_seed(seed)
    mask = torch.rand(length) < 0.8
    mask[torch.randint(0, length, ())] = True
    maps = attention(heads, length, mask, sharpness=sharpness)
    values = singular_values(valid_part(maps, mask))
    cumulative, rank = cumulative_spectrum(values), effective_rank(values)
    for head in range(heads):
        expected = reference_singular_values(maps[head], mask)
        assert values[head].tolist() == pytest.approx(expected, abs=1e-5)
        curve = reference_cumulative_spectrum(expected)
        assert cumulative[head].tolist() == pytest.approx(curve, abs=1e-5)
        assert float(rank[head]) == pytest.approx(reference_effective_rank(expected), rel=1e-4)
        curve = cumulative[head].tolist()
        assert int(smallest_index(cumulative[head], share)) == reference_smallest_index(curve, share)


def test_maps_whose_spectrum_is_known():
    same = torch.full((7, 7), 1 / 7)  # every row is the same: rank 1
    values = singular_values(torch.stack([torch.eye(7), same]))
    assert effective_rank(values).tolist() == pytest.approx([7.0, 1.0], abs=1e-4)
    cumulative = cumulative_spectrum(values)
    assert cumulative[0].tolist() == pytest.approx([j / 7 for j in range(1, 8)])
    assert smallest_index(cumulative, 0.5).tolist() == [4, 1]
    assert cumulative_spectrum(torch.zeros(3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("shape", [(5, 9, 9), (2, 3, 9, 9), (9, 9)])
def test_as_many_matrices_at_a_time_as_threads_are_the_same_ones_one_after_another(shape):
    maps = torch.rand(shape).softmax(-1)
    found = {}
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found[threads] = singular_values(maps)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found[3], found[1], rtol=0, atol=1e-13)
    assert found[1].shape == shape[:-1]


def test_padding_changes_nothing():
    mask = torch.tensor([True] * 5 + [False] * 4)
    maps = attention(2, 9, mask)
    torch.testing.assert_close(valid_part(maps, mask), maps[:, :5, :5])
    assert valid_part(maps, None) is maps


def test_cosines_of_maps():
    maps = torch.stack([torch.rand(5, 5), torch.rand(5, 5), torch.zeros(5, 5)])
    rows = map_directions(maps)
    found = rows @ rows.T
    assert float(found[0, 1]) == pytest.approx(reference_map_cosine(maps[0], maps[1]), abs=1e-6)
    assert found[:2, :2].diagonal().tolist() == pytest.approx([1.0, 1.0])
    assert found[2].tolist() == [0.0, 0.0, 0.0]


def test_bad_input():
    with pytest.raises(InputError, match=r"square.*\(2, 3, 4\)"):
        singular_values(torch.rand(2, 3, 4))
    for share in (0.0, 1.1):
        with pytest.raises(InputError, match="above 0 and at most 1"):
            smallest_index(torch.ones(3), share)
