"""Rotary positions and local attention against their twins, value and gradient, and what makes them what they are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.rotary import reference_local, reference_rotated

from longform.functional.positions.rotary import rotated, rotation_at
from longform.functional.window.local import BLOCKS, local_attention, local_context, local_weights
from strategies import generator, gradients, normal, seeds, texts
from tolerances import assert_close

FREQUENCIES = (1.0, 0.25)  # their products with small numbers have no rounding


@pytest.mark.parametrize("dim", [4, 7])
@settings(max_examples=20)
@given(seeds, st.lists(st.integers(0, 64), min_size=1, max_size=5))
def test_each_pair_is_turned_by_its_angle(dim, seed, positions):
    x = normal(generator(seed), 2, len(positions), 3, dim, grad=True)
    out = rotated(x, rotation_at(torch.tensor(positions), FREQUENCIES))
    expected = torch.stack([
        torch.stack([reference_rotated(x[b, :, h], positions, list(FREQUENCIES)) for h in range(3)], dim=1)
        for b in range(2)
    ])  # fmt: skip
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)  # cosines are float32, as in Hugging Face
    cotangent = normal(generator(seed + 1), *out.shape)
    [found], [wanted] = (gradients(y, cotangent, [x]) for y in (out, expected))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_products_know_distances_alone():
    query, key = normal(generator(0), 2, 1, 1, 1, 4)
    products = [
        (rotated(query, rotation_at(torch.tensor([at]), FREQUENCIES))
         * rotated(key, rotation_at(torch.tensor([at + 3]), FREQUENCIES))).sum()
        for at in (0, 7, 40)
    ]  # fmt: skip
    torch.testing.assert_close(products[1:], products[:1] * 2, atol=1e-6, rtol=1e-6)
    assert abs(products[0] - (query * key).sum()) > 1e-3


def test_texts_may_count_their_positions_apart():
    x = normal(generator(0), 2, 5, 1, 4)
    positions = torch.tensor([[0, 1, 2, 3, 4], [9, 8, 7, 3, 0]])
    both = rotation_at(positions, FREQUENCIES)
    alone = rotation_at(positions[1], FREQUENCIES)
    assert torch.equal(rotated(x, both)[1], rotated(x[1:], alone)[0])
    part = both.of(1).at(slice(2, 4))
    assert torch.equal(part.cos, alone.cos[2:4])


@settings(max_examples=25)
@given(st.data(), seeds, st.integers(1, 5))
def test_local_attention_is_its_twin(data, seed, reach):
    text = data.draw(texts(lengths=st.integers(1, 11), batch=2))
    query, key, value = (normal(generator(seed + i), text.batch, text.length, 2, 3, grad=True) for i in range(3))
    shown, mask = text.valid[..., None, None], None if text.mask is None else text.mask.bool()
    out = local_attention(query, key, torch.where(shown, value, 0.0), reach=reach, mask=mask)
    expected = torch.stack([
        torch.stack([
            reference_local(query[b, :, h], key[b, :, h], value[b, :, h], text.valid[b].tolist(), reach)
            for h in range(2)
        ], dim=1)
        for b in range(text.batch)
    ])  # fmt: skip
    out, expected = out * shown, expected * shown
    assert_close(out, expected)
    cotangent = normal(generator(seed + 3), *out.shape)
    leaves = [query, key, value]
    for found, wanted in zip(*(gradients(y, cotangent, leaves) for y in (out, expected)), strict=True):
        assert_close(found, wanted)
    weights = local_weights(query, key, reach=reach, mask=mask)
    assert_close(local_context(weights, torch.where(shown, value, 0.0), reach=reach) * shown, expected)


@torch.no_grad()
def test_more_blocks_than_are_attended_at_a_time():
    length, reach = 3 * BLOCKS * 2 + 1, 2
    query, key, value = (normal(generator(i), 1, length, 1, 3) for i in range(3))
    expected = reference_local(query[0, :, 0], key[0, :, 0], value[0, :, 0], [True] * length, reach)
    assert_close(local_attention(query, key, value, reach=reach)[0, :, 0], expected)
