"""Attention of rank k and random projections against float64 twins, and what is true of them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference.low_rank import reference_shortened_map, reference_svd_attention

from longform.errors import InputError
from longform_lab.bounds.random_projection import gaussian_projection, shortened_weights, theorem_2_matrices
from longform_lab.spectrum.low_rank import best_low_rank, svd_low_rank_attention
from tolerances import assert_close


@given(length=st.integers(2, 11), dim=st.integers(1, 5), rank=st.integers(1, 11), seed=st.integers(0, 99))
def test_attention_of_rank_k_is_its_twin(length, dim, rank, seed):
    torch.manual_seed(seed)
    query, key, value = (torch.randn(2, 3, length, dim, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(2, length) < 0.8
    mask[:, 0] = True
    rank = min(rank, length)
    out, low = svd_low_rank_attention(query, key, value, rank=rank, mask=mask)
    for text in range(2):
        for head in range(3):
            one = (x[text, head] for x in (query, key, value))
            expected, expected_map = reference_svd_attention(*one, rank, mask[text])
            assert_close(out[text, head], expected)
            assert_close(low[text, head], expected_map)


def test_at_full_rank_it_is_attention_and_padding_is_zero():
    query, key, value = (torch.randn(1, 2, 7, 3) for _ in range(3))
    mask = torch.tensor([[True] * 5 + [False] * 2])
    out, low = svd_low_rank_attention(query, key, value, rank=7, mask=mask)
    exact = torch.nn.functional.scaled_dot_product_attention(query[:, :, :5], key[:, :, :5], value[:, :, :5])
    assert_close(out[:, :, :5], exact)
    assert_close(low[:, :, 5:], torch.zeros(1, 2, 2, 7))
    half, _ = svd_low_rank_attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), rank=3)
    assert half.dtype == torch.float32


def test_no_map_of_the_rank_is_nearer():
    maps = torch.randn(4, 9, 9, dtype=torch.float64).softmax(-1)
    low = best_low_rank(maps, rank=3)
    tail = np.linalg.svd(maps.numpy(), compute_uv=False)[:, 3:]
    assert_close((low - maps).square().sum((1, 2)).sqrt(), torch.from_numpy(np.sqrt((tail**2).sum(1))))
    for _ in range(20):
        other = low + 0.01 * torch.randn(4, 9, 3, dtype=torch.float64) @ torch.randn(4, 3, 9, dtype=torch.float64)
        other = best_low_rank(other, rank=3)
        assert ((other - maps).norm(dim=(1, 2)) >= (low - maps).norm(dim=(1, 2))).all()


def test_the_implied_map_is_its_twin():
    logits = torch.randn(2, 7, 7, dtype=torch.float64)
    key_matrix, value_matrix = (torch.randn(2, 3, 7, dtype=torch.float64) for _ in range(2))
    found = shortened_weights(logits, key_matrix) @ value_matrix
    for head in range(2):
        assert_close(found[head], reference_shortened_map(logits[head], key_matrix[head], value_matrix[head]))


def test_random_matrices_have_the_variance_and_the_scale_of_the_proofs():
    drawn = gaussian_projection(400, 300, generator=torch.Generator().manual_seed(1), device=torch.device("cpu"))
    assert float(drawn.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(drawn.var()) == pytest.approx(1 / 400, rel=0.02)
    key_matrix, value_matrix = theorem_2_matrices(drawn)
    assert_close(key_matrix, drawn / 300)
    assert_close(value_matrix, drawn * math.exp(-1 / 300))


@pytest.mark.parametrize("rank", [0, 6])
def test_a_rank_that_there_is_not(rank):
    with pytest.raises(InputError, match=f"rank is {rank}.*from 1 to 5"):
        best_low_rank(torch.rand(2, 5, 5), rank=rank)
