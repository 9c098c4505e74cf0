"""The map that attention implies, on hand-made weights."""

import pytest
import torch

from longform.errors import InputError
from longform.layers.effective_attention import effective_map, near_map, value_rows
from longform.layers.geometry import Projection
from longform.layers.sequence_projection import make_projection
from tolerances import assert_close


def rows_of(kind: str | Projection, mask: torch.Tensor, *, slots: int, heads: int = 1) -> torch.Tensor:
    batch, length = mask.shape
    made = make_projection(
        kind, hidden_size=4, heads=heads, head_dim=4, max_length=length, slots=slots, fixed_runs=True
    ).double()
    return value_rows(made, mask, torch.zeros(batch, length, 4, dtype=torch.float64), heads)


def test_means_as_a_matrix():
    mask = torch.tensor([[1, 1, 1, 0, 1], [1, 0, 0, 0, 0]]).bool()
    first = [[0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    second = [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    expected = torch.tensor([[first], [second]], dtype=torch.float64)
    assert_close(rows_of("mean", mask, slots=3), expected)
    assert_close(rows_of("weighted_mean", mask, slots=3, heads=2), expected.expand(-1, 2, -1, -1))  # hidden states of 0


def test_dense_rows_are_rescaled_and_blank_on_padding(monkeypatch):
    matrix = torch.tensor([[[3.0, 0.0, 4.0]]], dtype=torch.float64)
    monkeypatch.setattr("longform.layers.sequence_projection._Matrix.initial", lambda self: matrix)
    mask = torch.tensor([[True, True, False]])
    for options in (Projection("linear"), Projection("linear", bias=True)):  # a bias has no row
        rows = rows_of(options, mask, slots=1)
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
