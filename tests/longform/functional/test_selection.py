"""Selection: the far slots that a block of queries looks at most are seen token by token."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import (
    ReferenceSlots,
    reference_full_attention,
    reference_over_batch,
    reference_ranked_slots,
    reference_windowed_attention,
)
from window_cases import HEADS, PATHS, Inputs, cases

from strategies import Text, generator, gradients, normal, seeds
from tolerances import assert_close

BUDGETS = st.sampled_from([None, 1.0, 3.5, 1e4])
SINKS = st.sampled_from([0, 1, 3])


def full_attention(inputs: Inputs) -> torch.Tensor:
    """Every query and every token of its text, (B, h, n, d), without a window; zeros on padding."""

    def one(b, i):
        return reference_full_attention(*(list(x[b, i]) for x in inputs.heads), inputs.text.valid[b].tolist())

    return torch.where(inputs.defined, reference_over_batch(one, inputs.text.batch, HEADS), 0.0)


@settings(max_examples=40)
@given(cases(kinds=("full", "right", "holes")), seeds, BUDGETS)
def test_the_twin_with_all_slots_selected_is_full_attention(case, seed, budget):
    inputs = Inputs(case, seed, selected=24)
    assert_close(torch.where(inputs.defined, inputs.twin(budget), 0.0), full_attention(inputs))


@pytest.mark.parametrize("selected", [1, 3, 6])
def test_selected_slots_of_the_twin_are_slots_of_one_token_each(selected):
    """Without a bias and a budget, for the queries of one block: the window's twin, of a memory that says so itself."""
    inputs = Inputs((2, 2, True, 9, Text(1, 17, None)), 5, sinks=1, selected=selected)
    query, key, value = (list(x[0, 0]) for x in inputs.heads)
    memory = [inputs.reference_slots(x, 0, 0) for x in inputs.memory]
    valid, block = [True] * 17, 5
    options = {"window": 2, "exact": [0], "selected": selected}
    found = reference_windowed_attention(query, key, value, valid, *memory, **options)[2 * block : 2 * block + 2]
    ranked = reference_ranked_slots(query, valid, memory[0], block=block, window=2, exact=[0])
    assert len(ranked) == 6  # of 9, 3 near
    opened = [j for _, j in ranked[:selected]]
    tokens = [t for j in opened for t in range(max(1, memory[0].start[j]), min(17, memory[0].stop[j]))]
    kept = [j for j in range(10) if j not in opened]
    split = [
        ReferenceSlots(
            [slots.vectors[j] for j in kept] + [of_token[t] for t in tokens],
            [slots.count[j] for j in kept] + [1] * len(tokens),
            [slots.start[j] for j in kept] + tokens,
            [slots.stop[j] for j in kept] + [t + 1 for t in tokens],
        )
        for slots, of_token in zip(memory, (key, value), strict=True)
    ]
    expected = reference_windowed_attention(query, key, value, valid, *split, window=2, exact=[0])
    assert_close(torch.stack(found), torch.stack(expected[2 * block : 2 * block + 2]))


def test_ranked_slots_of_the_twin_by_hand():
    """w = 4, slots of 2 over 18 tokens; the mean query of block 0 is (1, 0), of its text alone."""
    query = [torch.tensor([t, 0.0]) for t in (0.0, 2.0, 9.0, 1.0)] + [torch.zeros(2)] * 14
    valid = [True, True, False, True] + [True] * 14
    keys = [torch.tensor([x, 7.0]) for x in (9.0, 9.0, 9.0, 9.0, 1.0, 3.0, 1.0, 2.0)]
    slots = ReferenceSlots([*keys, None], [2] * 8 + [0], list(range(0, 18, 2)), list(range(2, 20, 2)))
    ranked = reference_ranked_slots(query, valid, slots, block=0, window=4)
    assert [j for _, j in ranked] == [5, 7, 4, 6]  # of two equal ones the earlier first; none near, none empty
    assert math.isclose(ranked[0][0], 3.0 / math.sqrt(2.0), rel_tol=1e-12)
    assert reference_ranked_slots(query, [False] * 4 + valid[4:], slots, block=0, window=4) == []
    first = ReferenceSlots([query[1], *keys], [1] * 9, [0, *range(0, 16, 2)], [1, *range(2, 18, 2)])
    assert [j for _, j in reference_ranked_slots(query, valid, first, block=3, window=4, exact=[0])] == [1, 2, 3, 4]


def test_the_budget_of_the_twin_is_of_slots_that_are_left():
    """Equal logits: far tokens that are selected weigh as near ones do, the others as min(budget, their number)."""
    length, window = 20, 2
    zeros, ones = [torch.zeros(1)] * length, [torch.ones(1)] * 10
    slots = [ReferenceSlots(x, [2] * 10, list(range(0, 20, 2)), list(range(2, 22, 2))) for x in (zeros[:10], ones)]
    for selected, budget in ((0, 6.0), (1, 6.0), (4, 6.0), (2, 15.0), (3, 0.5), (9, 1.0)):
        options = {"window": window, "memory_budget": budget, "selected": selected}
        out = reference_windowed_attention(zeros, zeros, zeros, [True] * length, *slots, **options)
        for t, found in enumerate(out):
            far = length - window * sum(abs(block - t // window) <= 1 for block in range(10))
            left = max(0, far - 2 * selected)
            stands_for = min(budget, left)
            assert math.isclose(float(found), stands_for / (stands_for + length - left), rel_tol=1e-12, abs_tol=1e-12)


@settings(max_examples=40)
@given(cases(kinds=("full", "right", "holes")), seeds, BUDGETS, SINKS, st.sampled_from([23, 24, 100]))
@pytest.mark.parametrize("path", PATHS)
def test_with_all_slots_selected_it_is_full_attention(path, case, seed, budget, sinks, selected):
    """More than there are: all of them; the memory and its bias have a gradient of zero then, but for the sinks."""
    inputs = Inputs(case, seed, sinks=sinks, selected=selected)
    inputs.memory = [
        torch.cat([of_token[:, :, : inputs.sinks], slots[:, :, inputs.sinks :]], dim=2)
        for of_token, slots in zip(inputs.heads[1:], inputs.memory, strict=True)
    ]
    inputs.bias = inputs.bias * (not sinks)
    out = inputs.fast(path, budget)[0]
    assert_close(torch.where(inputs.defined, out, 0.0), full_attention(inputs))
    if path != "without a gradient" and not sinks:
        found = gradients(out, inputs.cotangent, inputs.leaves[3:])
        assert not any(x.any() for x in found)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("selected", [1, 2, 3, 6])
def test_of_equal_products_the_earlier_slot_is_selected(path, dtype, selected):
    """Whole numbers, which no kernel rounds: 8 slots of 2 tokens, far from block 0 are slots 2 to 7."""
    inputs = Inputs((2, 2, True, 8, Text(1, 16, None)), 0, dtype, selected=selected)
    products = torch.tensor([9, 9, 1, 3, 3, 1, 3, 1])[:, None] * (torch.arange(16) == 0)
    of_token = torch.ones(16, 16), torch.zeros(16, 16), torch.eye(16)
    inputs.heads = [x.to(dtype)[None, None].requires_grad_() for x in of_token]
    inputs.memory, inputs.bias = [x.to(dtype)[None, None] for x in (products, torch.zeros(8, 16))], None
    seen = inputs.fast(path, None)[0][0, 0, 0].nonzero()[:, 0].tolist()
    expected = sorted(t for slot in [3, 4, 6, 2, 5, 7][:selected] for t in (2 * slot, 2 * slot + 1))
    assert seen == [0, 1, 2, 3, *expected]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("rounded", ["product", "mean"])
def test_in_bfloat16_the_choice_is_made_in_float32(path, rounded):
    """Large products that differ by little, or small ones of a large mean query: bfloat16 would select others."""
    source, dtype = generator(2), torch.bfloat16
    inputs = Inputs((8, 2, True, 64, Text(1, 128, None)), 1, dtype, selected=2)
    with torch.no_grad():
        inputs.heads[0] = 4 + normal(source, 1, 2, 128, 3, dtype=dtype) / 8
        keys = normal(source, 1, 2, 64, 3, dtype=dtype)
        inputs.memory[0] = 0.25 + keys / 64 if rounded == "product" else keys - keys.mean(dim=-1, keepdim=True)
        assert inputs.decided
        expected = inputs.twin(None)
    assert_close(inputs.fast(path, None)[0], expected)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=3), seeds, SINKS, st.integers(0, 4), BUDGETS)
@pytest.mark.parametrize("path", PATHS)
def test_a_document_selects_alone_as_in_a_batch(path, lengths, seed, sinks, selected, budget):
    """Documents with slots of a size of their own, as the twin has them."""
    width, limit = max(lengths), 10
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    inputs = Inputs((4, 4, False, limit, Text(len(lengths), width, mask)), seed, sinks=sinks, selected=selected)
    together = inputs.fast(path, budget)[0]
    for b, length in enumerate(lengths):
        alone = Inputs((4, 4, False, limit, Text(1, length, None)), seed, sinks=sinks, selected=selected)
        made = alone.slots.count.shape[1]
        alone.heads = [x[b : b + 1, :, :length] for x in inputs.heads]
        alone.memory, alone.bias = [x[b : b + 1, :, :made] for x in inputs.memory], inputs.bias
        assert_close(together[b : b + 1, :, :length], alone.fast(path, budget)[0])


@pytest.mark.parametrize("path", ["sdpa", "eager", "compiled"])
def test_gradients_of_gradients_equal_the_twin(path):
    mask = torch.arange(22) < torch.tensor([[22], [15]])
    inputs = Inputs((4, 2, True, 11, Text(2, 22, mask.long())), 2, sinks=1, reach=2, selected=2)
    assert inputs.decided
    found = []
    for out in (inputs.fast(path, 5.0)[0], torch.where(inputs.defined, inputs.twin(5.0), 0.0)):
        first = torch.autograd.grad((out * inputs.cotangent).sum(), inputs.leaves, create_graph=True)
        total, source = torch.zeros(()).double(), generator(9)
        for gradient in first:
            total = total + (gradient * normal(source, *gradient.shape)).sum()
        found.append([*first, *torch.autograd.grad(total, inputs.leaves)])
    for one, other in zip(*found, strict=True):
        assert_close(one, other)
