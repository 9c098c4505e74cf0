"""Latents: slots of tokens without an order, of any number."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from longform import (
    LinformerAttention,
    LinformerConfig,
    LinformerEncoder,
    LinformerEncoderLayer,
    LinformerModel,
    LinformerMultiheadAttention,
    Projection,
)
from longform.errors import ConfigurationError
from longform.layers.options import LATENTS
from strategies import generator, mask_rows, normal, randomised, seeds
from tolerances import assert_close

WIDTH, HEADS = 12, 4
OPTIONS = {  # that promise it
    "": {},
    "few slots": {"projected_length": 3},
    "k of each head": {"projected_length": [3, 5, 3, 7], "projection": Projection("latent", "none")},
    "longest length": {"max_length": 30, "projected_length": "auto"},
    "wide heads": {"head_dim": 5},
    "keys shared by heads": {"num_key_value_heads": 2},
    "keys as values": {"share_kv": True},
    "no bias": {"bias": False},
    "frozen": {"projection": Projection("latent", frozen=True)},
}
STACKS = {
    "post-norm": {"pre_norm": False},
    "gated": {"gated": True, "norm": "rms_norm"},
    "class token": {"num_prefix_tokens": 1},
}


def layer(**options):
    return randomised(LinformerAttention(WIDTH, HEADS, **{"projection": "latent"} | options).double())


@st.composite
def sets(draw):
    """x (2, n, D) with NaN for padding anywhere, its mask, and an order of the tokens."""
    length, source = draw(st.integers(1, 30)), generator(draw(seeds))
    mask = torch.tensor([draw(mask_rows(length, ("full", "right", "holes"))) for _ in range(2)]).bool()
    x = torch.where(mask[..., None], normal(source, 2, length, WIDTH), torch.nan)
    return x, mask, torch.randperm(length, generator=source)


def check_order(module, x, mask, order):
    out, mixed = module(x, mask), module(x[:, order], mask[:, order])
    assert out[mask].isfinite().all()
    assert_close(mixed[mask[:, order]], out[:, order][mask[:, order]])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@settings(max_examples=10)
@given(sets())
def test_a_permutation_of_the_tokens_permutes_the_output(options, some):
    check_order(layer(**options), *some)


@pytest.mark.parametrize("options", STACKS.values(), ids=STACKS)
@settings(max_examples=5)
@given(sets())
def test_and_that_of_a_stack(options, some):
    """Behind its class token."""
    x, mask, order = some
    if "num_prefix_tokens" in options:
        order = torch.cat([torch.zeros(1).long(), order[order != 0]])
    stack = randomised(LinformerEncoder(WIDTH, 2, HEADS, projection="latent", projected_length=5, **options).double())
    check_order(stack, x, mask, order)


@pytest.mark.parametrize("make", [
    lambda **own: nn.TransformerEncoder(
        LinformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True, **own), 2, enable_nested_tensor=False
    ),
    lambda **own: LinformerEncoderLayer(WIDTH, HEADS, 16, norm_first=True, batch_first=True, **own),
], ids=["stack", "layer"])  # fmt: skip
@settings(max_examples=5)
@given(sets())
def test_and_that_of_stand_ins(make, some):
    made = randomised(make(projection="latent").double())
    check_order(lambda x, mask: made(x, src_key_padding_mask=~mask), *some)


@settings(max_examples=5)
@given(sets())
def test_and_that_of_a_model_without_positions(some):
    _, mask, order = some
    config = LinformerConfig(
        vocab_size=40, hidden_size=12, num_hidden_layers=2, num_attention_heads=4, intermediate_size=8,
        max_position_embeddings=30, projected_length=5, projection="latent", position_init="none", use_pooler=False,
    )  # fmt: skip
    model = randomised(LinformerModel(config).double())
    ids = torch.randint(5, 40, mask.shape, generator=generator(0))

    def read(ids, mask):
        return model(ids, attention_mask=mask.long()).last_hidden_state

    check_order(read, ids, mask, order)


@settings(max_examples=10)
@given(sets(), st.integers(1, 9))
def test_a_context_is_a_set(some, queries):
    x, mask, order = some
    attention, hidden = layer(), normal(generator(1), 2, queries, WIDTH)
    out = attention(hidden, context=x, context_mask=mask)
    assert_close(attention(hidden, context=x[:, order], context_mask=mask[:, order]), out)
    assert_close(attention(hidden.flip(1), context=x, context_mask=mask), out.flip(1))
    other = randomised(LinformerMultiheadAttention(WIDTH, HEADS, batch_first=True, projection="latent").double())
    found, _ = other(hidden, x, x, key_padding_mask=~mask)
    mixed, _ = other(hidden, x[:, order], x[:, order], key_padding_mask=~mask[:, order])
    assert_close(mixed, found)


@settings(max_examples=10)
@given(sets(), st.integers(0, 20))
def test_a_set_in_a_batch_is_the_set_alone(some, width):
    x, mask, _ = some
    attention = layer(projected_length=4)
    padded = torch.cat([x, torch.full((2, width, WIDTH), torch.nan).double()], dim=1)
    together = attention(padded, torch.cat([mask, torch.zeros(2, width).bool()], dim=1))
    for row, valid, out in zip(x, mask, together[:, : x.shape[1]], strict=True):
        assert_close(out[valid], attention(row[valid][None])[0])


def test_any_number_of_tokens_by_the_same_weights():
    """In training and in use; 64 slots where nothing is said."""
    attention = LinformerAttention(WIDTH, HEADS, projection="latent")
    assert attention.groups[0].latents(None).shape == (HEADS, LATENTS, WIDTH // HEADS)
    assert attention.max_length is None
    for length in (1, 5, 64, 65, 1000):
        attention(torch.randn(1, length, WIDTH)).sum().backward()
    assert [name for name, x in attention.named_parameters() if x.grad is None] == []
    _, weights = attention(torch.randn(2, 9, WIDTH), output_attentions=True)
    assert weights.shape == (2, HEADS, 9, LATENTS)


def test_the_gate_opens_from_zero():
    """What a latent seeks changes nothing at first, and learns at once where the gate is open."""
    attention, x = LinformerAttention(WIDTH, HEADS, projection="latent").double(), normal(generator(0), 1, 9, WIDTH)
    other = copy.deepcopy(attention)
    nn.init.normal_(other.groups[0].seekers.latents)
    assert torch.equal(attention(x), other(x))
    attention(x).square().sum().backward()
    assert attention.groups[0].gate.latents.grad.abs().min() > 0


REFUSED = {
    "tokens_per_slot": {"tokens_per_slot": 4},
    "tile": {"tile": (2, 2)},
    "causal": {"causal": True},
    "selected_slots": {"selected_slots": 2},
    "sharing": {"projection": Projection("latent", "key_value")},
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("cls", [LinformerAttention, LinformerEncoder, LinformerMultiheadAttention])
def test_what_needs_an_order_is_refused(name, cls):
    layers = (2,) if cls is LinformerEncoder else ()
    with pytest.raises(ConfigurationError, match=rf"(?=.*{name})(?=.*latent)"):
        cls(WIDTH, *layers, HEADS, **{"projection": "latent"} | REFUSED[name])
