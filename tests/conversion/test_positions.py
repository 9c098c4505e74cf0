import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longform.errors import ConfigurationError
from longform.functional.positions.tables import extend_positions, tiled_positions


@pytest.mark.parametrize("method", ["tile", "interpolate"])
@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("length", [5, 11])
def test_the_same_or_a_shorter_length_cuts(method, offset, length):
    table = torch.randn(11 + offset, 3)
    assert torch.equal(extend_positions(table, length=length, offset=offset, method=method), table[: offset + length])


def test_tiling_repeats_the_inner_positions():
    known = torch.arange(7.0)[:, None]
    longer = extend_positions(known, length=19, method="tile")[:, 0].tolist()
    assert longer == [0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]


@given(known=st.integers(1, 30), length=st.integers(1, 100))
def test_tiling_takes_known_rows_and_keeps_the_first(known, length):
    rows = tiled_positions(known=known, length=length)
    assert rows[:known].tolist() == list(range(min(known, length)))
    assert rows.min() >= 0
    assert rows.max() < known


def test_the_offset_stays_in_front():
    table = torch.randn(9, 3)
    for method in ("tile", "interpolate"):
        assert torch.equal(extend_positions(table, length=20, offset=2, method=method)[:2], table[:2])


def test_interpolation_is_linear_between_the_same_ends():
    table = torch.tensor([[0.0], [2.0], [6.0]], dtype=torch.float64)
    stretched = extend_positions(table, length=5, method="interpolate")
    assert stretched.dtype == torch.float64
    assert stretched[:, 0].tolist() == [0.0, 1.0, 2.0, 4.0, 6.0]


def test_an_unknown_method_is_refused():
    with pytest.raises(
        ConfigurationError, match="positions='repeat' is not known; choose one of 'tile', 'interpolate'"
    ):
        extend_positions(torch.zeros(3, 2), length=4, method="repeat")
