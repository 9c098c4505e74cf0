import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longform.functional import dense
from longform.functional.dense import project_first_is_cheaper
from strategies import Text, generator, gradients, normal, seeds, texts
from tolerances import assert_close


def multiply_adds(*shapes: tuple[int, int, int]) -> int:
    """Of products (a, b) @ (b, c), counted one by one."""
    return sum(1 for rows, inner, columns in shapes for _ in range(rows * inner * columns))


@pytest.mark.parametrize(("n", "k", "hidden", "heads"), [(7, 3, 10, 2), (11, 5, 6, 3), (3, 13, 4, 4), (9, 4, 4, 2)])
@pytest.mark.parametrize("per_head", [False, True])
def test_the_order_of_fewer_multiply_adds_is_chosen(n, k, hidden, heads, per_head):
    dim = hidden // heads
    weights_first = multiply_adds((n, hidden, hidden), *[(k, n, dim)] * heads)
    shared = multiply_adds((k, n, hidden), (k, hidden, hidden))
    each = multiply_adds(*[(k, n, hidden)] * heads, *[(k, hidden, dim)] * heads)
    found = project_first_is_cheaper(n=n, k=k, hidden=hidden, heads=heads, per_head=per_head)
    assert found == ((each if per_head else shared) <= weights_first)


def test_the_cheaper_order_is_chosen():
    assert project_first_is_cheaper(n=512, k=128, hidden=768, heads=12, per_head=False)
    assert not project_first_is_cheaper(n=512, k=128, hidden=768, heads=12, per_head=True)
    assert not project_first_is_cheaper(n=100, k=128, hidden=768, heads=12, per_head=False)


@settings(max_examples=60)
@given(texts(lengths=st.integers(1, 11)), seeds, st.booleans(), st.booleans())
def test_both_orders_are_one_number(text: Text, seed: int, per_head: bool, with_bias: bool):
    source, heads, dim, slots, longest = generator(seed), 3, 2, 5, 11
    x = normal(source, text.batch, text.length, heads * dim, grad=True)
    weight = normal(source, heads * dim, heads * dim, grad=True)
    bias = normal(source, heads * dim, grad=True) if with_bias else None
    matrix = normal(source, heads if per_head else 1, slots, longest, grad=True)
    cotangent = normal(source, text.batch, heads, slots, dim)
    inputs = [t for t in (x, weight, bias, matrix) if t is not None]
    found = []
    for project_first in (True, False):
        rows = dense.select_rows(matrix, text.checked, length=text.length)
        blank = x if text.checked is None else torch.where(text.checked[..., None], x, 0.0)
        short = dense.dense_project(blank, rows) if project_first else None
        out = dense.shortened_heads(blank, weight, bias, rows, heads=heads, short=short)
        found.append([out, *gradients(out, cotangent, inputs)])
    for one, other in zip(*found, strict=True):
        assert_close(one, other)


def test_a_shared_projection_is_counted_once():
    """E = F: E X is formed once, so that E first already pays where it would not with two."""
    options = {"n": 10, "k": 7, "hidden": 16, "heads": 2, "per_head": False}
    for n in (5, 6, 7, 8):  # around k
        options["n"] = n
        first = {shared: 2 * 7 * 16 * 16 + (2 - shared) * n * 7 * 16 for shared in (False, True)}
        last = 2 * (n * 16 * 16 + n * 7 * 16)
        for shared in (False, True):
            assert project_first_is_cheaper(**options, shared=shared) == (first[shared] <= last)
    assert project_first_is_cheaper(**options | {"n": 6}, shared=True)
    assert not project_first_is_cheaper(**options | {"n": 6}, shared=False)
