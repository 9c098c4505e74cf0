import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.attention import (
    ReferenceSlots,
    reference_convolution,
    reference_length,
    reference_pool,
    reference_slot_size,
)

from longform.functional.masks import blank_padding
from longform.functional.slots import (
    base_slot_size,
    convolve,
    divisors,
    make_runs,
    max_pool,
    mean_pool,
    segment_sum,
    slot_sizes,
)
from strategies import Text, away_from_zero, generator, gradients, normal, seeds, texts
from tolerances import assert_close

HEADS, DIM = 3, 2
DTYPES = st.sampled_from([torch.float64, torch.float32])


@st.composite
def pools(draw: st.DrawFn):
    """Slots k, base size C and a text of at most k C tokens."""
    slots, base = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 4, 6]))
    return slots, base, draw(texts(lengths=st.integers(1, slots * base)))


def fast_slots(text: Text, slots: int, sizes: tuple[int, ...]):
    device = torch.device("cpu")
    return make_runs(text.checked, batch=text.batch, length=text.length, device=device, sizes=sizes, slots=slots)


def assert_same_slots(found, expected: list[ReferenceSlots]):
    """``found`` may leave out slots past the padded end: they are empty."""
    made = found.count.shape[1]
    for b, slots in enumerate(expected):
        assert found.count[b].tolist() == slots.count[:made]
        assert not any(slots.count[made:])
        assert [j * int(found.size[b]) for j in range(made)] == slots.start[:made]
        assert [(j + 1) * int(found.size[b]) for j in range(made)] == slots.stop[:made]
        assert found.uniform is None or found.uniform == int(found.size[b])


def stacked(expected: list[ReferenceSlots], made: int, features: int):
    empty = torch.zeros(features, dtype=torch.float64)
    return torch.stack([torch.stack([empty if v is None else v for v in slots.vectors[:made]]) for slots in expected])


def assert_same_pool(found, expected, x, extra, seed):
    """Forward on used slots, gradients of a random functional of them."""
    assert torch.isfinite(found).all()
    cotangent = normal(generator(seed + 1), *expected.shape)
    used = (expected != 0).any(dim=-1, keepdim=True)
    assert_close(torch.where(used, found, 0.0), expected)
    inputs = [x, *extra]
    one = gradients(found, cotangent * used, inputs)
    other = gradients(expected, cotangent * used, inputs)
    for a, b in zip(one, other, strict=True):
        assert_close(a, b)


@given(st.integers(1, 6), st.integers(1, 60), st.data())
def test_slot_sizes_equal_the_twin(slots, base, data):
    lengths = data.draw(st.lists(st.integers(0, slots * base), min_size=1, max_size=4))
    found = slot_sizes(torch.tensor(lengths), sizes=divisors(base), slots=slots)
    assert found.tolist() == [reference_slot_size(length, base_size=base, slots=slots) for length in lengths]


def test_few_tokens_keep_a_slot_each_and_many_the_papers_stride():
    base = base_slot_size(max_length=4096, slots=128)
    sizes = slot_sizes(torch.tensor([1, 128, 129, 256, 257, 2048, 2049, 4096]), sizes=divisors(base), slots=128)
    assert base == 32
    assert sizes.tolist() == [1, 1, 2, 2, 4, 16, 32, 32]


@given(st.integers(1, 50), st.integers(1, 50))
def test_slots_reach_the_end_of_the_longest_text(length, slots):
    base = base_slot_size(max_length=length, slots=slots)
    assert base * slots >= length > (base - 1) * slots
    assert divisors(base) == tuple(c for c in range(1, base + 1) if base % c == 0)


@settings(max_examples=80)
@given(pools(), seeds, DTYPES)
@pytest.mark.parametrize("largest", [False, True])
def test_mean_and_max_equal_the_twin(largest, pool, seed, dtype):
    slots, base, text = pool
    x = normal(generator(seed), text.batch, text.length, 5, dtype=dtype, grad=True)
    blank = blank_padding(x, text.checked)
    found = fast_slots(text, slots, divisors(base))
    expected = []
    for b in range(text.batch):
        valid = text.valid[b].tolist()
        size = reference_slot_size(reference_length(valid), base_size=base, slots=slots)
        expected.append(reference_pool(list(x[b]), valid, slots=slots, size=size, largest=largest))
    assert_same_slots(found, expected)
    [mean], most = mean_pool(blank, runs=found, limit=slots), max_pool(blank, found, text.checked, limit=slots)
    short = most if largest else mean
    assert_same_pool(short, stacked(expected, short.shape[1], 5), x, [], seed)


@settings(max_examples=80)
@given(pools(), seeds, DTYPES, st.booleans())
def test_convolution_equals_the_twin(pool, seed, dtype, per_head):
    slots, base, text = pool
    source = generator(seed)
    x = normal(source, text.batch, text.length, HEADS, DIM, dtype=dtype, grad=True)
    kernel = away_from_zero(source, HEADS if per_head else 1, DIM, base, dtype=dtype, grad=True)
    found = fast_slots(text, slots, (base,))
    short = convolve(blank_padding(x.flatten(2), text.checked).unflatten(2, (HEADS, DIM)), kernel, text.checked)
    for i in range(HEADS):
        weights = kernel[i if per_head else 0]
        expected = [
            reference_convolution(list(x[b, :, i]), text.valid[b].tolist(), weights, slots=slots)
            for b in range(text.batch)
        ]
        assert_same_slots(found, expected)
        assert_same_pool(short[:, :, i], stacked(expected, short.shape[1], DIM), x, [kernel], seed)


def test_a_convolution_with_taps_of_one_over_c_is_the_mean():
    mask = torch.tensor([[1, 0, 1, 1, 1, 0, 0, 0], [1] * 8]).bool()
    x = blank_padding(normal(generator(0), 2, 8, 6), mask)
    slots = make_runs(mask, batch=2, length=8, device=x.device, sizes=(4,), slots=3)
    kernel = torch.full((1, 2, 4), 0.25, dtype=torch.float64)
    convolved = convolve(x.unflatten(2, (3, 2)), kernel, mask).flatten(2)
    assert_close(convolved, mean_pool(x, runs=slots, limit=3)[0][:, : convolved.shape[1]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e-3])
def test_an_empty_slot_is_finite_whatever_the_taps(dtype, size):
    """A hidden slot still meets its weight of zero, and 0 * inf is NaN."""
    mask = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 0, 1, 1], [0] * 10]).bool()
    x = normal(generator(0), 2, 10, HEADS, DIM, dtype=dtype, grad=True)
    kernel = (away_from_zero(generator(1), HEADS, DIM, 4, dtype=dtype) * 3 * size).requires_grad_()
    short = convolve(blank_padding(x.flatten(2), mask).unflatten(2, (HEADS, DIM)), kernel, mask)
    assert torch.isfinite(short).all()
    for gradient in gradients(short, (mask.any(dim=1))[:, None, None, None], [x, kernel]):
        assert torch.isfinite(gradient).all()


def test_a_channel_whose_valid_taps_are_zero_is_zero():
    mask = torch.tensor([[1, 0, 0, 0]]).bool()
    x = normal(generator(0), 1, 4, 1, DIM, grad=True)
    kernel = torch.tensor([[[0.0, 2.0, 2.0, 2.0], [1.0, 2.0, 2.0, 2.0]]], dtype=torch.float64).requires_grad_()
    short = convolve(blank_padding(x.flatten(2), mask).unflatten(2, (1, DIM)), kernel, mask)
    assert_close(short[0, 0, 0], torch.stack([torch.zeros(()).double(), 7.0 * x[0, 0, 0, 1].detach()]))
    for gradient in gradients(short, torch.ones(1), [x, kernel]):
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() < 1e3


@pytest.mark.parametrize("kind", ["mean", "max", "convolution"])
def test_what_a_document_gets_does_not_depend_on_the_batch(kind):
    """The compiled form of the same functions keeps empty runs at the end, and nothing else."""
    x, mask = normal(generator(0), 2, 9, 4), torch.tensor([[1] * 9, [1] * 4 + [0] * 5]).bool()
    x = blank_padding(x, mask)

    def short(x, mask):
        sizes = (3,) if kind == "convolution" else (1, 3)
        slots = make_runs(mask, batch=len(x), length=x.shape[1], device=x.device, sizes=sizes, slots=4)
        if kind == "convolution":
            kernel = torch.tensor([[[0.5, -1.0, 2.0], [1.0, 1.5, -0.5]]], dtype=torch.float64)
            out = convolve(x.unflatten(2, (2, 2)), kernel, mask).flatten(2)
        else:
            out = mean_pool(x, runs=slots, limit=4)[0] if kind == "mean" else max_pool(x, slots, mask, limit=4)
        return out, slots.count

    both, counts = short(x, mask)
    alone, count = short(x[1:, :4], None)
    used = math.ceil(4 / (3 if kind == "convolution" else 1))
    assert_close(both[1, :used], alone[0, :used])
    assert counts[1].sum() == count.sum() == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("length", "size"), [(3, 4), (12, 4), (14, 4), (14, 1), (30, 10), (33, 10)])
@pytest.mark.parametrize("sinks", [0, 1, 4, 5])
def test_sums_leave_tokens_out(length, size, sinks, dtype):
    """Whether a run has some of them, is one of them, or is cut short; with gradients and without."""
    x = normal(generator(1), 2, length, 3, dtype=dtype)
    expected, counted = x.double().clone(), (torch.arange(length) >= sinks).repeat(2, 1)
    counted[1, sinks::3] = False
    expected[~counted] = 0.0
    expected = torch.stack([run.sum(dim=1) for run in expected.split(size, dim=1)], dim=1)
    given_size, options = torch.tensor([size, size]), {"limit": length, "counted": counted}
    for grad in (False, True):
        found = segment_sum(x.clone().requires_grad_(grad), given_size, size, **options)
        assert_close(found, expected)
    by_index = segment_sum(x, given_size, None, **options)
    assert_close(by_index[:, : expected.shape[1]], expected)


def test_slots_of_texts_without_padding_are_those_of_a_full_mask():
    options = {"batch": 2, "length": 13, "device": torch.device("cpu"), "sizes": (1, 2, 4), "slots": 5}
    rest = (torch.arange(13) >= 1).expand(2, -1)
    made = make_runs(None, rest, **options)
    masked = make_runs(torch.ones(2, 13, dtype=torch.bool), rest, **options)
    assert torch.equal(made.count, masked.count)
    assert torch.equal(made.size, masked.size)
