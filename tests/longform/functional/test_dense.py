import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import ReferenceLinear, reference_dense_projection

from longform.functional.dense import dense_project, select_rows, shortened_heads
from longform.functional.masks import blank_padding
from longform.layers.sequence_projection import block_mean_matrix
from strategies import Text, away_from_zero, generator, gradients, normal, seeds, texts
from tolerances import assert_close

LONGEST, SLOTS, HEADS, DIM = 11, 5, 3, 2


def twin(x, text: Text, matrix, heads: int):
    """x (B, n, h, d), matrix (g, k, N) -> slots (B, h, k, d) and whether each is in use, (B, h, k)."""
    out = torch.zeros(text.batch, heads, matrix.shape[1], x.shape[-1], dtype=torch.float64)
    used = torch.zeros(text.batch, heads, matrix.shape[1], dtype=torch.bool)
    for b in range(text.batch):
        for i in range(heads):
            rows = matrix[i if len(matrix) > 1 else 0]
            for j, slot in enumerate(reference_dense_projection(list(x[b, :, i]), text.valid[b].tolist(), rows)):
                if slot is not None:
                    out[b, i, j], used[b, i, j] = slot, True
    return out, used


def in_use(rows, text: Text, heads: int):
    if rows.occupied is None:
        return torch.ones(text.batch, heads, rows.matrix.shape[1], dtype=torch.bool)
    return rows.occupied.expand(text.batch, heads, -1)


@settings(max_examples=60)
@given(texts(lengths=st.integers(1, LONGEST)), seeds, st.booleans(), st.sampled_from([torch.float64, torch.float32]))
def test_slots_and_gradients_equal_the_twin(text: Text, seed: int, per_head: bool, dtype: torch.dtype):
    source = generator(seed)
    x = normal(source, text.batch, text.length, HEADS, DIM, dtype=dtype, grad=True)
    matrix = away_from_zero(source, HEADS if per_head else 1, SLOTS, LONGEST, dtype=dtype, grad=True)
    cotangent = normal(source, text.batch, HEADS, SLOTS, DIM)
    rows = select_rows(matrix, text.checked, length=text.length)
    blank = blank_padding(x.flatten(2), text.checked)
    if per_head:
        short = dense_project(blank.unflatten(2, (HEADS, DIM)), rows)
    else:
        short = dense_project(blank, rows)[:, 0].unflatten(2, (HEADS, DIM)).transpose(1, 2)
    expected, used = twin(x, text, matrix, HEADS)
    assert torch.equal(in_use(rows, text, HEADS), used)
    assert_close(short, expected)
    for found, wanted in zip(
        gradients(short, cotangent, [x, matrix]), gradients(expected, cotangent, [x, matrix]), strict=True
    ):
        assert_close(found, wanted)


@settings(max_examples=60)
@given(texts(lengths=st.integers(1, LONGEST)), seeds, st.booleans())
def test_keys_are_the_projection_of_weighted_tokens(text: Text, seed: int, per_head: bool):
    source = generator(seed)
    width = HEADS * DIM
    hidden, weight, bias = normal(source, text.batch, text.length, width), normal(source, width, width), None
    bias = normal(source, width)
    matrix = away_from_zero(source, HEADS if per_head else 1, SLOTS, LONGEST)
    rows = select_rows(matrix, text.checked, length=text.length)
    blank = blank_padding(hidden, text.checked)
    found = shortened_heads(blank, weight, bias, rows, heads=HEADS, short=dense_project(blank, rows))
    linear = ReferenceLinear(weight, bias)
    keys = torch.stack([torch.stack([linear(token) for token in row]) for row in hidden])
    expected, _ = twin(keys.unflatten(2, (HEADS, DIM)), text, matrix, HEADS)
    assert_close(found, expected)


def test_at_full_length_it_is_the_plain_product():
    source = generator(0)
    x, matrix = normal(source, 2, LONGEST, 7), normal(source, 1, SLOTS, LONGEST)
    assert_close(dense_project(x, select_rows(matrix, None, length=LONGEST))[:, 0], matrix[0] @ x)


@given(st.integers(1, LONGEST - 1), seeds)
def test_a_shorter_text_is_rescaled_to_the_norm_of_the_row(length: int, seed: int):
    matrix = normal(generator(seed), 1, SLOTS, LONGEST)
    rows = select_rows(matrix, None, length=length)
    effective = dense_project(torch.eye(length).double()[None], rows)[0, 0]
    used = in_use(rows, Text(1, length, None), 1)[0, 0]
    assert_close(effective[used].norm(dim=1), matrix[0, used].norm(dim=1))
    assert_close(rows.total[0, 0], effective.sum(dim=1))


@given(st.integers(1, 3 * SLOTS), seeds)
def test_rows_without_mass_on_the_text_are_empty(length: int, seed: int):
    longest = 3 * SLOTS
    matrix = block_mean_matrix(SLOTS, longest).double()[None]
    rows = select_rows(matrix, None, length=length)
    expected = [j * 3 < length for j in range(SLOTS)]
    assert in_use(rows, Text(1, length, None), 1)[0, 0].tolist() == expected
    short = dense_project(normal(generator(seed), 1, length, 4), rows)
    assert torch.isfinite(short).all()
    assert (short[0, 0, [not used for used in expected]] == 0).all()


@given(st.integers(1, 3 * SLOTS - 1), seeds)
def test_a_little_training_does_not_fill_empty_rows(length: int, seed: int):
    longest = 3 * SLOTS
    begun = block_mean_matrix(SLOTS, longest).double()[None]
    matrix = begun + 1e-3 * normal(generator(seed), *begun.shape)
    before, after = (
        in_use(select_rows(each, None, length=length), Text(1, length, None), 1) for each in (begun, matrix)
    )
    assert torch.equal(before, after)
    x = normal(generator(seed), 1, length, 4)
    used = before[0, 0]
    near, wanted = (dense_project(x, select_rows(each, None, length=length))[0, 0, used] for each in (matrix, begun))
    torch.testing.assert_close(near, wanted, rtol=0, atol=0.1)


def test_gradients_of_a_row_of_padding_are_zero_and_finite():
    matrix = normal(generator(1), 1, 3, 8, grad=True)
    mask = torch.zeros(1, 5).bool()
    x = torch.full((1, 5, 4), math.nan, dtype=torch.float64, requires_grad=True)
    short = dense_project(blank_padding(x, mask), select_rows(matrix, mask, length=5))
    assert all((gradient == 0).all() for gradient in gradients(short, torch.ones(1), [x, matrix]))
