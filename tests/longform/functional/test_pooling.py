import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longform.choices import POOLINGS
from longform.functional.masks import masked_mean
from longform.functional.pooling import lead_mean, pooled, pooled_width, sublinear_weights
from strategies import Text, generator, normal, seeds, texts
from tolerances import assert_close


@given(texts(lengths=st.integers(1, 9)), seeds)
def test_early_tokens_weigh_more_and_padding_nothing(text: Text, seed: int):
    x = normal(generator(seed), text.batch, text.length, 5)
    dirty = torch.where(text.valid[..., None], x, math.nan).requires_grad_()
    found = lead_mean(dirty, text.checked)
    for b in range(text.batch):
        total, mass = torch.zeros(5).double(), 0.0
        places = text.valid[b].nonzero()[:, 0].tolist()
        for t in places:
            weight = 1 / (1 + (t - places[0]) / 64)
            total, mass = total + x[b, t] * weight, mass + weight
        assert_close(found[b].detach(), total / mass if mass else total)
    (gradient,) = torch.autograd.grad(found.sum(), dirty)
    assert torch.equal(gradient != 0, text.valid[..., None].expand_as(x))


def test_a_document_alone_is_pooled_as_in_a_padded_batch():
    x, place = normal(generator(0), 3, 200, 3), torch.arange(200)
    mask = torch.stack([place < 200, place < 70, place >= 130])
    for kind in POOLINGS:
        assert_close(pooled(x, mask, kind=kind)[1], pooled(x[1:2, :70], None, kind=kind)[0])
        assert_close(pooled(x, mask, kind=kind)[2], pooled(x[2:, 130:], None, kind=kind)[0])


def test_the_first_512_of_4096_tokens_have_half_of_the_weight():
    first = (torch.arange(4096) < 512).double()[None, :, None]
    assert lead_mean(first, None).item() == pytest.approx(0.53, abs=0.01)
    assert masked_mean(first, None).item() == 0.125


def test_a_mean_of_bfloat16_states_is_summed_in_float32():
    x = normal(generator(1), 1, 3000, 2).bfloat16()
    assert_close(lead_mean(x, None), lead_mean(x.double(), None).bfloat16())


@pytest.mark.parametrize("mask", [None, torch.arange(4097)[None] < 4096])
def test_a_mean_of_float16_states_does_not_overflow(mask):
    x = torch.full((1, 4097, 2), 20.0, dtype=torch.float16)
    assert masked_mean(x, mask).tolist() == [[20.0, 20.0]]


def test_the_kind_is_chosen_by_name():
    x = normal(generator(2), 1, 80, 3)
    assert torch.equal(pooled(x, None, kind="lead"), lead_mean(x, None))
    assert torch.equal(pooled(x, None, kind="mean"), masked_mean(x, None))
    assert torch.equal(pooled(x, None, kind="cls"), x[:, 0])


@pytest.mark.parametrize(("kind", "mean"), [("cls_mean", masked_mean), ("cls_lead", lead_mean)])
def test_the_first_state_stands_beside_the_mean_and_padding_is_blank(kind, mean):
    x = normal(generator(3), 2, 80, 3)
    mask = torch.arange(80) < torch.tensor([[70], [0]])
    found = pooled(torch.where(mask[..., None], x, math.nan), mask, kind=kind)
    assert found.shape == (2, pooled_width(kind, 3))
    assert torch.equal(found[0], torch.cat([x[0, 0], mean(x, mask)[0]]))
    assert torch.equal(found[1], torch.zeros(6))


@given(texts(lengths=st.integers(1, 12)), seeds)
def test_a_repeated_token_weighs_the_root_of_its_count(text: Text, seed: int):
    ids = torch.randint(0, 4, (text.batch, text.length), generator=generator(seed))
    found = sublinear_weights(ids, text.valid)
    for b in range(text.batch):
        own = ids[b, text.valid[b]].tolist()
        weights = [1 / math.sqrt(own.count(token)) for token in own]
        expected = torch.zeros(text.length, dtype=torch.float64)
        expected[text.valid[b]] = torch.tensor([len(own) * w / sum(weights) for w in weights], dtype=torch.float64)
        assert_close(found[b], expected)
    other = torch.where(text.valid, ids, 99)
    assert torch.equal(sublinear_weights(other, text.valid), found)
