"""Causal layers: no token of the future, what the words say, and step by step the whole."""

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.orders import causal as twin

from longform import LinformerAttention, LinformerEncoder
from longform.errors import ConfigurationError, InputError
from longform.layers.options import Projection
from strategies import generator, normal, padded, randomised, turns
from tolerances import assert_close

SIZES = [(1, 2, 19), (2, 4, 37), (4, 4, 50), (4, 8, 9), (3, 6, 31)]  # tokens a slot, window, n
KINDS = [
    {"projection": "weighted_mean", "short_convolution": 5},
    {"projection": "mean"},
    {"projection": "max"},
    {"projection": "convolution"},
    {"projection": "weighted_mean", "num_prefix_tokens": 2, "num_key_value_heads": 2},
    {"projection": Projection("mean", memory_budget=3.0)},
]


def attention(run, window, **kind):
    options = {"short_convolution": 0} | kind
    made = LinformerAttention(16, 4, tokens_per_slot=run, attention_window=window, causal=True, **options)
    return randomised(made.double())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("run", "window", "length"), SIZES)
def test_changing_a_token_changes_nothing_before_it(kind, run, window, length):
    layer, hidden = attention(run, window, **kind), normal(generator(1), 2, length, 16)
    with torch.no_grad():
        whole = layer(hidden)
        for token in range(length):
            other = hidden.clone()
            other[:, token] += 1.0
            change = (layer(other) - whole).abs().amax(dim=(0, 2))
            assert (change[:token] == 0).all()
            assert change[token] > 0


@pytest.mark.parametrize(("run", "window", "length"), SIZES)
def test_near_tokens_exactly_and_complete_runs_far(run, window, length):
    layer, hidden = attention(run, window, projection="weighted_mean"), normal(generator(1), 2, length, 16)
    with torch.no_grad():
        for row, out in zip(hidden, layer(hidden), strict=True):
            assert_close(out, twin(layer, row, run))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("run", "window", "length"), SIZES)
@pytest.mark.parametrize("first", [1, 3, -2])
def test_step_by_step_is_the_whole(kind, run, window, length, first):
    encoder = LinformerEncoder(
        16, 2, 4, tokens_per_slot=run, attention_window=window, causal=True, positions="rotary",
        **{"short_convolution": 0} | kind,
    )  # fmt: skip
    randomised(encoder.double())
    hidden = normal(generator(1), 2, length, 16)
    cache, first = encoder.new_cache(), first % length
    with torch.no_grad():
        parts = [encoder(hidden[:, :first], cache=cache)]
        parts += [encoder(hidden[:, t : t + 1], cache=cache) for t in range(first, length - 1)]
        parts.append(encoder(hidden[:, length - 1 :], cache=cache))
        assert_close(torch.cat(parts, dim=1), encoder(hidden), scope="model")


@torch.no_grad()
def test_several_tokens_at_once_and_rows_with_holes():
    encoder = randomised(
        LinformerEncoder(16, 2, 4, tokens_per_slot=2, attention_window=4, causal=True, positions="sine")
    )
    hidden, mask = normal(generator(1), 3, 30, 16).float(), torch.ones(3, 30)
    mask[1, :7], mask[2, 5:9] = 0, 0
    cache = encoder.new_cache()
    parts = [encoder(hidden[:, :12], mask[:, :12], cache=cache), encoder(hidden[:, 12:20], cache=cache)]
    cache.reorder_cache(torch.tensor([2, 0, 1]))
    parts = [torch.cat(parts, dim=1)[[2, 0, 1]], encoder(hidden[[2, 0, 1], 20:], cache=cache)]
    whole = encoder(hidden, mask)[[2, 0, 1]]
    valid = mask[[2, 0, 1]].bool()
    assert_close(torch.cat(parts, dim=1)[valid], whole[valid], scope="model")


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("positions", "pieces"),
    [*itertools.product([None, "rotary"], [(12, 20, 1, 4), (3, 9, 25)]), ("learned", (12, 20, 1, 4)), ("sine", (37,))],
    ids=str,
)
def test_padding_anywhere_in_any_piece(kind, positions, pieces):
    options = {"short_convolution": 0, "max_length": 40} | kind
    encoder = LinformerEncoder(
        16, 2, 4, tokens_per_slot=2, attention_window=4, causal=True, positions=positions, **options
    )
    randomised(encoder.double())
    hidden, mask, cache = normal(generator(1), 6, 37, 16), padded(37), encoder.new_cache()
    hidden[mask == 0] = float("nan")
    given = zip(hidden.split(pieces, 1), mask.split(pieces, 1), strict=True)
    parts = torch.cat([encoder(x, some, cache=cache) for x, some in given], dim=1)
    whole, valid = encoder(hidden, mask), mask.bool()
    assert_close(parts[valid], whole[valid], scope="model")
    found, wanted = (torch.autograd.grad(x[valid].sum(), [*encoder.parameters()]) for x in (parts, whole))
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, scope="model")


@settings(max_examples=60)
@given(turns(), st.sampled_from(KINDS), st.sampled_from([None, "rotary"]), st.sampled_from([(1, 1), (2, 6), (3, 3)]))
@torch.no_grad()
def test_any_split_of_any_masked_batch(masks, kind, positions, sizes):
    encoder = LinformerEncoder(
        16, 2, 4, tokens_per_slot=sizes[0], attention_window=sizes[1], causal=True, positions=positions,
        **{"short_convolution": 0} | kind,
    )  # fmt: skip
    randomised(encoder.double())
    mask, cache = torch.cat(masks, dim=1), encoder.new_cache()
    hidden = normal(generator(1), *mask.shape, 16)
    hidden[mask == 0] = float("nan")
    given = zip(hidden.split([some.shape[1] for some in masks], 1), masks, strict=True)
    parts = torch.cat([encoder(x, some, cache=cache) for x, some in given], dim=1)
    assert_close(parts[mask.bool()], encoder(hidden, mask)[mask.bool()], scope="model")


MODES = {"inference": torch.inference_mode, "no gradient": torch.no_grad, "gradient": torch.enable_grad}
CHANGES = [(one, other, one) for one, other in itertools.product(MODES, repeat=2)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_cache_goes_on_in_any_mode(kind):
    """Begun, gone on with and copied in inference mode, under no_grad or for gradients, which pass."""
    encoder = randomised(
        LinformerEncoder(
            16, 2, 4, tokens_per_slot=2, attention_window=4, causal=True, **{"short_convolution": 0} | kind
        ).double()
    )
    hidden, mask = normal(generator(1), 6, 37, 16), padded(37)
    whole, valid = encoder(hidden, mask).detach(), mask.bool()
    for modes in CHANGES:
        cache, parts = encoder.new_cache(), []
        for x, some, mode in zip(hidden.split((12, 5, 20), 1), mask.split((12, 5, 20), 1), modes, strict=True):
            with MODES[mode]():
                parts.append(encoder(x, some, cache=cache))
                if mode != "gradient" and "gradient" not in modes:
                    encoder(x, cache=copy.deepcopy(cache))
        for part in parts:
            if part.requires_grad:
                part.sum().backward(retain_graph=True)
        assert_close(torch.cat([x.detach().clone() for x in parts], dim=1)[valid], whole[valid], scope="model")


@pytest.mark.parametrize("kind", KINDS, ids=str)
@torch.no_grad()
def test_a_cache_goes_on_in_another_dtype(kind):
    encoder = LinformerEncoder(
        16, 2, 4, tokens_per_slot=2, attention_window=4, causal=True, **{"short_convolution": 0} | kind
    )
    hidden, bounds = normal(generator(1), 2, 37, 16), {torch.float64: 1e-5, torch.float32: 1e-5, torch.bfloat16: 0.2}
    whole = randomised(encoder.double())(hidden)
    for first, then in itertools.product([*bounds, "autocast"], repeat=2):
        cache, model, parts = encoder.new_cache(), copy.deepcopy(encoder), []
        for x, dtype in zip(hidden.split((20, 17), 1), (first, then), strict=True):
            plain = torch.float32 if dtype == "autocast" else dtype
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"):
                parts.append(model.to(plain)(x.to(plain), cache=cache).double())
        error = (torch.cat(parts, dim=1) - whole).abs().max()
        assert error < max(bounds.get(first, 0.2), bounds.get(then, 0.2))


def test_layers_that_are_computed_again_take_no_cache():
    """They would read twice."""
    encoder, x = LinformerEncoder(8, 1, 2, causal=True, gradient_checkpointing=True), torch.zeros(2, 3, 8)
    cache = encoder.new_cache()
    with pytest.raises(InputError, match=r"read the same tokens into the cache twice: leave the cache out"):
        encoder(x, cache=cache)
    with torch.no_grad():
        assert torch.equal(encoder(x, cache=cache), encoder(x))


@torch.no_grad()
def test_memory_is_two_windows_and_the_slots():
    """Of a layer with a longest text nothing grows; without one, slots do."""
    bounded = LinformerEncoder(8, 2, 2, 4096, tokens_per_slot=8, attention_window=8, causal=True).eval()
    cache, x, seen = bounded.new_cache(), torch.randn(1, 1, 8), set()
    for _ in range(100):
        bounded(x, cache=cache)
        seen.add(cache.numbers())
    assert len(seen) == 1
    slots, ring = 4096 // 8, 2 * 8
    assert seen.pop() == 2 * (2 * slots * 8 + slots + 2 * ring * 8 + ring + 8 * 8 + 4 * 8 + 2)
    endless = LinformerEncoder(8, 1, 2, tokens_per_slot=8, attention_window=8, causal=True).eval()
    cache = endless.new_cache()
    for _ in range(300):
        endless(x, cache=cache)
    assert cache.numbers() < 4 * (300 / 8 + 64) * 8


@torch.no_grad()
def test_in_bfloat16_the_same_choice():
    encoder = randomised(LinformerEncoder(32, 2, 4, tokens_per_slot=2, attention_window=8, causal=True)).bfloat16()
    head, hidden, cache = torch.nn.Linear(32, 11).bfloat16(), torch.randn(2, 40, 32).bfloat16(), encoder.new_cache()
    steps = torch.cat([encoder(hidden[:, t : t + 1], cache=cache) for t in range(40)], dim=1)
    agree = (head(steps).argmax(-1) == head(encoder(hidden)).argmax(-1)).float().mean()
    assert agree >= 0.97  # roundings of bfloat16 turn near ties


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_length": 16, "projection": "linear"}, "each slot of projection='linear' is made of the whole text"),
        ({"tokens_per_slot": 4}, "causal=True needs attention_window, a multiple of the 4 tokens of a slot, not None"),
        ({"max_length": 16, "projected_length": 4, "attention_window": 9}, "use attention_window=12"),
        ({"max_length": 16, "projected_length": [4, 2, 4, 4], "attention_window": 8}, "one k for all heads"),
    ],
    ids=str,
)
def test_what_cannot_be_causal_says_why(options, said):
    chosen = Projection("mean", "none" if "projected_length" in options else "headwise")
    with pytest.raises(ConfigurationError, match=said):
        LinformerAttention(16, 4, causal=True, **{"projection": chosen} | options)


def test_a_cache_that_does_not_fit_is_refused():
    encoder = LinformerEncoder(8, 1, 2, 12, tokens_per_slot=2, attention_window=4, causal=True)
    cache = encoder.new_cache()
    encoder(torch.zeros(2, 10, 8), cache=cache)
    with pytest.raises(InputError, match="the cache one of 2"):
        encoder(torch.zeros(3, 1, 8), cache=cache)
    with pytest.raises(InputError, match="has read 10 tokens and gets 3 more"):
        encoder(torch.zeros(2, 3, 8), cache=cache)
    with pytest.raises(InputError, match="no weights of tokens that go on from a cache"):
        encoder(torch.zeros(2, 1, 8), cache=cache, output_attentions=True)
    with pytest.raises(InputError, match="a cache is of an encoder with causal=True"):
        LinformerEncoder(8, 1, 2)(torch.zeros(2, 3, 8), cache=cache)
    with pytest.raises(ConfigurationError, match="a context is attended to through its slots only"):
        encoder.layers[0].attention(torch.zeros(2, 3, 8), context=torch.zeros(2, 3, 8))


def test_gradients_pass():
    layer, hidden = attention(2, 4, projection="weighted_mean", short_convolution=3), normal(generator(1), 1, 11, 16)
    assert torch.autograd.gradcheck(lambda x: layer(x), hidden.requires_grad_(), fast_mode=True)
