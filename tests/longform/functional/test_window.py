import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference.attention import (
    ReferenceSlots,
    reference_far_slots,
    reference_full_attention,
    reference_over_batch,
)
from window_cases import DTYPES, HEADS, PATHS, SELECTED, Inputs, cases, taking

from longform.functional.masks import blank_padding
from longform.functional.slots import Slots, make_runs
from longform.functional.window import windowed_attention
from strategies import Text, gradients, seeds
from tolerances import assert_close

REACHES = st.sampled_from([0, 0, 0, 1, 4])  # of a bias by distance


@settings(max_examples=80)
@given(cases(), seeds, DTYPES, st.sampled_from([None, 1.0, 3.5, 1e4]), st.sampled_from([0, 0, 1, 3]), SELECTED, REACHES)
@pytest.mark.parametrize("path", PATHS)
def test_output_and_gradients_equal_the_twin(path, case, seed, dtype, budget, sinks, selected, reach):
    inputs = Inputs(case, seed, dtype, sinks, min(reach, case[0] + 1), selected)
    assume(inputs.decided)
    out, _ = inputs.fast(path, budget)
    assert torch.isfinite(out).all()
    expected = inputs.twin(budget)
    assert_close(torch.where(inputs.defined, out, 0.0), torch.where(inputs.defined, expected, 0.0))
    if path != "without a gradient":
        found = gradients(out, inputs.cotangent, inputs.leaves)
        wanted = gradients(torch.where(inputs.defined, expected, 0.0), inputs.cotangent, inputs.leaves)
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)


@settings(max_examples=40)
@given(cases(), seeds, SELECTED)
@pytest.mark.parametrize("path", PATHS)
def test_two_blocks_are_full_attention(path, case, seed, selected):
    window, base, fixed, slots, text = case
    kept = min(text.length, 2 * window)
    mask = None if text.mask is None else text.mask[:, :kept]
    inputs = Inputs((window, base, fixed, slots, Text(text.batch, kept, mask)), seed, selected=selected)
    out, _ = inputs.fast(path, 1.0)

    def one(b, i):
        return reference_full_attention(*(list(x[b, i]) for x in inputs.heads), inputs.text.valid[b].tolist())

    expected = reference_over_batch(one, text.batch, HEADS)
    assert_close(torch.where(inputs.defined, out, 0.0), torch.where(inputs.defined, expected, 0.0))


@settings(max_examples=80)
@given(cases(kinds=("full", "right", "holes")), seeds, SELECTED)
def test_every_valid_token_is_counted_once(case, seed, selected):
    """With equal logits the output is a mean over tokens, however they are grouped."""
    inputs = Inputs(case, seed)
    text, slots = inputs.text, inputs.slots
    values = torch.eye(text.length).double().expand(text.batch, 1, -1, -1)
    values = blank_padding(values[:, 0], inputs.mask)[:, None].expand(-1, HEADS, -1, -1)
    sums = torch.zeros(text.batch, slots.count.shape[1], text.length).double()
    for b, size in enumerate(inputs.sizes):
        for t in torch.nonzero(text.valid[b]).flatten().tolist():
            sums[b, t // size, t] = 1.0 / float(slots.count[b, t // size])
    zeros = [torch.zeros(text.batch, HEADS, n, text.length).double() for n in (text.length, text.length, sums.shape[1])]
    query, key, memory_key = zeros
    memory_value = sums[:, None].expand(-1, HEADS, -1, -1)
    memory = Slots(memory_key, memory_value, None, slots)
    options = {"window": inputs.window, "mask": inputs.mask, "selected": selected}
    out, _ = windowed_attention(query, key, values, lambda: memory, **options)
    share = text.valid.double() / text.valid.sum(dim=1, keepdim=True)
    assert_close(torch.where(inputs.defined, out, 0.0), share[:, None, None].expand_as(out) * inputs.defined)


@settings(max_examples=30)
@given(cases(kinds=("full", "right", "holes")), seeds)
def test_weights_give_the_output_and_sum_to_one(case, seed):
    inputs = Inputs(case, seed)
    out, weights = inputs.fast("eager", 2.0)
    made = inputs.slots.count.shape[1]
    assert weights.shape == (inputs.text.batch, HEADS, inputs.text.length, made + 3 * inputs.window)
    assert_close(weights.sum(dim=-1), torch.ones_like(out[..., 0]))
    value, memory_value = inputs.heads[2], inputs.memory[1]
    for t in range(inputs.text.length):
        start = (t // inputs.window - 1) * inputs.window
        mixed = (weights[:, :, t, :made, None] * memory_value).sum(dim=2)
        for m in range(3 * inputs.window):
            weight = weights[:, :, t, made + m, None]
            if 0 <= start + m < inputs.text.length:
                mixed = mixed + weight * value[:, :, start + m]
            else:
                assert (weight == 0).all()
        assert_close(mixed * inputs.defined[:, :, t], out[:, :, t])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("selected", "reach"), [(0, 0), (2, 0), (12, 0), (0, 5)])
@pytest.mark.parametrize("length", [1, 4, 9, 12, 13, 24])
def test_a_row_of_padding_is_finite_and_leaves_the_others_alone(path, selected, reach, length):
    """Forward and backward."""
    mask = torch.tensor([[0] * length, [1] * length])
    inputs = Inputs((4, 2, True, 12, Text(2, length, mask)), 7, reach=reach, selected=selected)
    out, _ = inputs.fast(path, 3.0)
    assert torch.isfinite(out).all()
    found = gradients(out, torch.ones_like(out), inputs.leaves)
    assert all(torch.isfinite(x).all() for x in found)
    assert_close(out[1], inputs.twin(3.0)[1])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("selected", [0, 2])
@pytest.mark.parametrize("bias", [None, -1e4])
def test_without_a_bias_or_with_the_memory_off(path, selected, bias):
    inputs = Inputs((2, 2, True, 8, Text(2, 15, None)), 3, selected=selected)
    inputs.bias = bias if bias is None else torch.full((HEADS,), bias, dtype=torch.float64)
    out, _ = inputs.fast(path, None)
    inputs.bias = torch.zeros(HEADS) if bias is None else inputs.bias
    assert_close(out, inputs.twin(None))
    if bias is not None and not selected:
        query, key, value = inputs.heads
        near = [reference_full_attention([query[0, 0, 0]], list(key[0, 0, :4]), list(value[0, 0, :4]), [True] * 4)]
        assert_close(out[0, 0, 0], near[0][0])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("selected", [0, 3, 10])
def test_the_budget_is_what_all_slots_stand_for_together(path, selected):
    """Equal logits: all far tokens in slots weigh as much as min(budget, their number) near ones."""
    length, window = 20, 2
    slots = make_runs(None, batch=1, length=length, device=torch.device("cpu"), sizes=(2,), slots=10)
    zeros = torch.zeros(1, 1, length, 1).double()
    far = torch.ones(1, 1, 10, 1).double()
    for budget in (0.5, 6.0, 15.0, 1e9):
        memory = Slots(torch.zeros_like(far), far, None, slots)
        options = {"window": window, "memory_budget": budget, "output_attentions": path == "eager"}
        options["selected"] = selected
        with taking(path):
            out, _ = windowed_attention(zeros, zeros, zeros, lambda memory=memory: memory, **options)
        for t in range(length):
            near = sum(abs(s // window - t // window) <= 1 for s in range(length))
            exact = min(length, near + 2 * selected)
            stands_for = min(budget, length - exact)
            assert math.isclose(float(out[0, 0, t, 0]), stands_for / (stands_for + exact), rel_tol=1e-12, abs_tol=1e-12)


def test_far_slots_of_the_twin_by_hand():
    """w = 4, slots of 2 over 16 tokens: block 0 sees the slots from position 8 on, block 2 the first two only."""
    slots = ReferenceSlots([None] * 8, [2] * 7 + [0], list(range(0, 16, 2)), list(range(2, 18, 2)))
    assert reference_far_slots(slots, block=0, window=4) == [4, 5, 6]
    assert reference_far_slots(slots, block=1, window=4) == [6]
    assert reference_far_slots(slots, block=2, window=4) == [0, 1]
    assert reference_far_slots(slots, block=3, window=4) == [0, 1, 2, 3]
