"""The map that attention implies, on hand-made weights."""

import pytest
import torch

from longform.errors import InputError
from longform.functional.dense import select_rows
from longform.functional.slots import make_slots
from longform.layers.effective_attention import dense_value_rows, effective_map, mean_value_rows, near_map
from tolerances import assert_close


def test_means_as_a_matrix():
    mask = torch.tensor([[1, 1, 1, 0, 1], [1, 0, 0, 0, 0]]).bool()
    slots = make_slots(mask, batch=2, length=5, device=torch.device("cpu"), sizes=(2,), slots=3)
    rows = mean_value_rows(slots, mask, length=5, dtype=torch.float64)
    first = [[0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    second = [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert_close(rows, torch.tensor([[first], [second]], dtype=torch.float64))


def test_dense_rows_are_rescaled_and_blank_on_padding():
    matrix = torch.tensor([[[3.0, 0.0, 4.0]]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    rows = dense_value_rows(select_rows(matrix, mask, length=3), mask)
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
