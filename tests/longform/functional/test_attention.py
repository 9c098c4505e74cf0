import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import reference_attention, reference_over_batch

from longform.functional.attention import slot_attention
from strategies import generator, gradients, normal, seeds
from tolerances import assert_close

BATCH, HEADS, LENGTH, DIM, SLOTS = 2, 3, 5, 4, 7
PATHS = ("sdpa", "eager")


def heads_of(source, *, slots: int = SLOTS, dtype=torch.float64, value_dim: int = DIM):
    shapes = ((LENGTH, DIM), (slots, DIM), (slots, value_dim))
    return [normal(source, BATCH, HEADS, *shape, dtype=dtype, grad=True) for shape in shapes]


def twin(query, key, value, slot_mask):
    def hidden_as_none(x, b, i):
        return [slot if slot_mask[b, i, j] else None for j, slot in enumerate(x[b, i])]

    def one(b, i):
        return reference_attention(list(query[b, i]), hidden_as_none(key, b, i), hidden_as_none(value, b, i))

    out = reference_over_batch(lambda b, i: one(b, i)[0], BATCH, HEADS)
    return out, reference_over_batch(lambda b, i: list(one(b, i)[1]), BATCH, HEADS)


@settings(max_examples=40)
@given(seeds, st.data(), st.sampled_from([torch.float64, torch.float32]))
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("groups", [0, 1, HEADS])
def test_attention_equals_the_twin(path, groups, seed, data, dtype):
    query, key, value = heads_of(generator(seed), dtype=dtype)
    shape = (BATCH, SLOTS) if groups == 0 else (BATCH, groups, SLOTS)
    bits = data.draw(st.lists(st.booleans(), min_size=math.prod(shape), max_size=math.prod(shape)))
    slot_mask = torch.tensor(bits).view(shape)
    slot_mask[..., data.draw(st.integers(0, SLOTS - 1))] = True
    out, weights = slot_attention(query, key, value, slot_mask=slot_mask, output_attentions=path == "eager")
    by_head = (slot_mask[:, None] if groups == 0 else slot_mask).expand(BATCH, HEADS, SLOTS)
    expected, expected_weights = twin(query, key, value, by_head)
    assert_close(out, expected)
    if path == "eager":
        assert_close(weights, expected_weights)
    else:
        assert weights is None
    cotangent = normal(generator(seed + 1), *out.shape)
    inputs = [query, key, value]
    for found, wanted in zip(gradients(out, cotangent, inputs), gradients(expected, cotangent, inputs), strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("path", PATHS)
def test_without_a_mask_every_slot_is_seen(path):
    query, key, value = heads_of(generator(0))
    out, _ = slot_attention(query, key, value, output_attentions=path == "eager")
    assert_close(out, twin(query, key, value, torch.ones(BATCH, HEADS, SLOTS))[0])
    assert_close(out, torch.softmax(query @ key.mT / math.sqrt(DIM), dim=-1) @ value)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("groups", [1, HEADS])
def test_a_text_without_a_slot_is_finite(path, groups):
    """Forward and backward; the other texts of the batch are as they were."""
    inputs = heads_of(generator(1))
    slot_mask = torch.ones(BATCH, groups, SLOTS).bool()
    slot_mask[0] = False
    out, _ = slot_attention(*inputs, slot_mask=slot_mask, output_attentions=path == "eager")
    assert torch.isfinite(out).all()
    plain, _ = slot_attention(*inputs, output_attentions=path == "eager")
    assert_close(out[1], plain[1])
    assert all(torch.isfinite(gradient).all() for gradient in gradients(out, torch.ones(1), inputs))


@pytest.mark.parametrize("path", PATHS)
def test_a_hidden_slot_takes_no_attention_from_the_others(path):
    query, key, value = heads_of(generator(2))
    slot_mask = torch.arange(SLOTS).expand(BATCH, SLOTS) < 4
    out, _ = slot_attention(query, key, value, slot_mask=slot_mask, output_attentions=path == "eager")
    short, _ = slot_attention(query, key[:, :, :4], value[:, :, :4], output_attentions=path == "eager")
    assert_close(out, short)


def test_dropout_is_on_the_weights_and_keeps_the_mean():
    query, key, value = heads_of(generator(4))
    plain, weights = slot_attention(query, key, value, output_attentions=True)
    draws = [slot_attention(query, key, value, output_attentions=True, dropout=0.5)[0] for _ in range(400)]
    assert not torch.equal(draws[0], draws[1])
    spread = torch.stack(draws).std(dim=0) / math.sqrt(len(draws))
    assert ((torch.stack(draws).mean(dim=0) - plain).abs() < 6 * spread).all()
    assert weights is not None
