import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference.attention import reference_length, reference_valid

from longform.errors import InputError
from longform.functional.masks import blank_padding, checked_mask, document_lengths, masked_mean
from strategies import Text, generator, normal, seeds, texts
from tolerances import assert_close


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]
)
def test_every_way_to_write_ones_and_zeros_is_a_mask(dtype):
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]]).to(dtype)
    checked = checked_mask(mask, batch=2, length=3)
    assert checked is not None
    assert checked.dtype == torch.bool
    assert checked.tolist() == [[True, True, False], [True, False, False]]


@pytest.mark.parametrize("mask", [None, torch.ones(2, 3), torch.ones(2, 3).bool(), torch.ones(2, 3).long()])
def test_a_mask_of_ones_is_no_mask(mask):
    assert checked_mask(mask, batch=2, length=3) is None


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (torch.ones(2, 4), r"shape \(2, 4\).*\(2, 3\)"),
        (torch.ones(1, 3), r"shape \(1, 3\)"),
        (torch.ones(2, 1, 1, 3), r"shape \(2, 1, 1, 3\)"),
        (torch.ones(3), r"shape \(3,\)"),
        (torch.tensor([[1, 1, 2], [1, 0, 0]]), "holds 2"),
        (torch.tensor([[1, 1, -1], [1, 0, 0]]), "holds -1"),
        (torch.tensor([[1.0, 0.5, 1.0], [1.0, 0.0, 0.0]]), "holds 0.5"),
        (torch.tensor([[0.0, -math.inf, 1.0], [1.0, 0.0, 0.0]]), "holds -inf"),
        (torch.tensor([[0.0, math.nan, 1.0], [1.0, 0.0, 0.0]]), "holds nan"),
    ],
)
def test_a_bad_mask_is_named(mask, said):
    with pytest.raises(InputError, match=said):
        checked_mask(mask, batch=2, length=3)


@given(texts(lengths=st.integers(1, 9)), seeds)
def test_lengths_are_the_last_valid_position_plus_one(text: Text, seed: int):
    found = document_lengths(text.checked, batch=text.batch, length=text.length, device=torch.device("cpu"))
    valid = reference_valid(text.mask, text.batch, text.length)
    assert found.tolist() == [reference_length(row) for row in valid]


@given(texts(lengths=st.integers(1, 9)), seeds)
def test_the_mean_is_over_valid_tokens(text: Text, seed: int):
    x = normal(generator(seed), text.batch, text.length, 5)
    dirty = torch.where(text.valid[..., None], x, math.nan)
    found = masked_mean(dirty, text.checked)
    for b in range(text.batch):
        kept = [x[b, t] for t in range(text.length) if text.valid[b, t]]
        assert_close(found[b], sum(kept) / len(kept) if kept else torch.zeros(5).double())


@given(texts(lengths=st.integers(1, 9)), seeds)
def test_blanked_padding_passes_neither_values_nor_gradients(text: Text, seed: int):
    x = normal(generator(seed), text.batch, text.length, 5)
    dirty = torch.where(text.valid[..., None], x, math.nan).requires_grad_()
    blank = blank_padding(dirty, text.checked)
    assert torch.equal(blank, torch.where(text.valid[..., None], x, 0.0))
    (gradient,) = torch.autograd.grad((blank * 3).sum(), dirty)
    assert torch.equal(gradient, 3.0 * text.valid[..., None].expand_as(x))
