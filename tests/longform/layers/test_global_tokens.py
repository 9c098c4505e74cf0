"""Tokens that every query sees exactly (``global_attention_mask``); attention_kinds has layers with some of them.

Those layers go through the tests of every layer: the twin, its gradients, padding, NaN, transforms.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_kinds import KINDS, LONGEST, model, text
from torch.nn.functional import scaled_dot_product_attention

import longform
from longform import LinformerAttention, LinformerEncoder
from longform.choices import POOLED, PROJECTIONS
from longform.errors import ConfigurationError, InputError
from longform.functional.dispatch import listening
from longform.functional.latent import unit_rms
from longform.layers import streaming
from longform.layers.options import Projection
from strategies import generator, mask_rows, normal, randomised, seeds
from tolerances import assert_close

WIDTH, HEADS, TOKENS = 12, 2, 40


def layer(projection: str = "mean", *, window: int | None = 4, sinks: int = 0, **options) -> LinformerAttention:
    """Random weights; no bias or budget of slots, which exact tokens have too, or no convolution."""
    kind = Projection.of(projection)
    chosen = {
        "max_length": TOKENS,
        "projected_length": 10,
        "short_convolution": 0,
        "num_prefix_tokens": sinks,
        **options,
    }
    made = LinformerAttention(WIDTH, HEADS, projection=kind, attention_window=window, **chosen).double()
    made = randomised(made, seed=1)
    if made.memory_bias is not None:
        torch.nn.init.zeros_(made.memory_bias)
    return made


def full(made: LinformerAttention, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """softmax(Q Kᵀ / sqrt(d)) V over the text."""
    query, key, value = (
        part(hidden).unflatten(2, (HEADS, -1)).transpose(1, 2)
        for part in (made.query or made.key, made.key, made.value)
    )
    if made.meets_latents:  # queries and keys of one length
        query, key = unit_rms(query), unit_rms(key) * key.shape[-1] ** 0.5
    seen = scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
    return made.output(seen.transpose(1, 2).flatten(2))


WAYS = [*((p, None) for p in (*PROJECTIONS, "content_and_place")), *((p, 4) for p in POOLED)]


@pytest.mark.parametrize(("projection", "window"), WAYS)
@pytest.mark.parametrize("sinks", [0, 2])
def test_all_tokens_marked_is_full_attention(projection, window, sinks):
    """By every kernel, whatever the marks say of padding, with NaN in it."""
    sinks = 0 if projection in ("linear", "random", "content_and_place") else sinks
    made = layer(projection, window=window, sinks=sinks)
    mask = torch.arange(TOKENS) < torch.tensor([[TOKENS], [23]])
    hidden = normal(generator(2), 2, TOKENS, WIDTH)
    expected = full(made, hidden, mask)[mask]
    hidden = hidden.masked_fill(~mask[..., None], math.nan)
    for gradient in (False, True):
        with torch.set_grad_enabled(gradient):
            assert_close(made(hidden, mask, global_attention_mask=torch.ones(2, TOKENS))[mask], expected)


@pytest.mark.parametrize("projection", POOLED)
@pytest.mark.parametrize("window", [None, 4])
def test_sinks_are_marked_tokens_at_the_start(projection, window):
    hidden, marks = normal(generator(3), 2, 31, WIDTH), torch.arange(31).expand(2, -1) < 3
    plain, with_sinks = layer(projection, window=window), layer(projection, window=window, sinks=3)
    with_sinks.load_state_dict(plain.state_dict())
    assert_close(plain(hidden, global_attention_mask=marks), with_sinks(hidden))
    assert_close(
        with_sinks(hidden, global_attention_mask=marks.roll(1, dims=1)),
        plain(hidden, global_attention_mask=marks | marks.roll(1, dims=1)),
    )
    assert_close(plain(hidden, global_attention_mask=torch.zeros(2, 31)), plain(hidden))


@settings(max_examples=30)
@given(st.data(), seeds, st.sampled_from([None, 3.0]), st.sampled_from([0, 2]), st.sampled_from([0, 1]))
def test_kernels_agree_and_a_document_alone_is_as_in_a_batch(data, seed, budget, selected, sinks):
    """In inference each document by itself, with gradients by blocks; texts of any length and marks of their own."""
    projection = Projection("mean", memory_budget=budget)
    made = layer(projection, sinks=sinks, selected_slots=selected)
    torch.nn.init.normal_(made.memory_bias, generator=generator(seed))
    lengths = data.draw(st.lists(st.integers(1, TOKENS), min_size=1, max_size=3))
    marks = torch.tensor([data.draw(mask_rows(TOKENS, ("holes", "empty", "right"))) for _ in lengths])
    mask = torch.arange(TOKENS) < torch.tensor(lengths)[:, None]
    hidden = normal(generator(seed), len(lengths), TOKENS, WIDTH)
    trained = made(hidden, mask, global_attention_mask=marks)
    with torch.no_grad():
        assert_close(made(hidden, mask, global_attention_mask=marks)[mask], trained[mask])
        for b, n in enumerate(lengths):
            alone = made(hidden[b : b + 1, :n], global_attention_mask=marks[b : b + 1, :n])
            assert_close(alone[0], trained[b, :n])
    weighed, weights = made(hidden, mask, global_attention_mask=marks, output_attentions=True)
    assert_close(weighed[mask], trained[mask])
    assert_close(weights.sum(dim=-1).transpose(1, 2)[mask], torch.ones_like(trained[mask][:, :HEADS]))


@pytest.mark.parametrize("window", [None, 4])
def test_a_gradient_of_gradients(window):
    made, marks = layer("weighted_mean", window=window), torch.tensor([[0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0]])
    hidden = normal(generator(4), 1, 13, WIDTH, grad=True)
    assert torch.autograd.gradgradcheck(lambda x: made(x, global_attention_mask=marks), hidden, fast_mode=True)


@pytest.mark.parametrize("window", [None, 4])
def test_long_texts_in_parts(monkeypatch, window):
    monkeypatch.setattr(streaming, "LONG", 17)
    monkeypatch.setattr(streaming, "CPU_ROWS", 8)
    torch.manual_seed(0)
    encoder = randomised(LinformerEncoder(WIDTH, 2, HEADS, TOKENS, tokens_per_slot=4, attention_window=window).double())
    hidden, marks = normal(generator(5), 2, TOKENS, WIDTH), (torch.arange(TOKENS) % 7 == 5).expand(2, -1)
    mask = torch.arange(TOKENS) < torch.tensor([[TOKENS], [19]])
    expected = encoder(hidden, mask, global_attention_mask=marks)
    with torch.no_grad():
        assert_close(encoder(hidden, mask, global_attention_mask=marks)[mask], expected[mask])
        one = encoder(hidden[1, :19], global_attention_mask=marks[1, :19])
    assert_close(one, expected[1, :19])
    assert (expected - encoder(hidden, mask))[mask].abs().max() > 1e-4


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "causal" not in kind])
def test_models_on_either_side_of_padding(kind):
    """The marks move with the text; a marked token far away is seen."""
    made, given = model(kind).eval(), text(2, LONGEST)
    marks = (torch.arange(LONGEST) % 9 == 4).expand(2, -1)
    short = {name: x[1:, 8:] for name, x in given.items() if name != "attention_mask"}
    given["attention_mask"] = torch.ones(2, LONGEST).long()
    given["attention_mask"][1, :8] = 0
    with torch.no_grad():
        out = made(**given, global_attention_mask=marks).last_hidden_state
        assert_close(out[1, 8:], made(**short, global_attention_mask=marks[1:, 8:]).last_hidden_state[0])


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (torch.ones(2, 30), "global_attention_mask has shape"),
        (torch.full((2, 31), 2), "holds 2; it takes 1 for tokens that every query sees"),
        (torch.ones(2, 31), "marks 30 tokens of a text beside 1 sinks, at most 16"),
    ],
)
def test_bad_marks(marks, message):
    made = layer(sinks=1)
    made.max_global_tokens = 16
    with pytest.raises(InputError, match=message):
        made(torch.zeros(2, 31, WIDTH).double(), global_attention_mask=marks)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"causal": True}, {}),
        ({"window": None, "tile": (4,), "projected_length": None}, {}),
        ({"window": None}, {"context": torch.zeros(1, 5, WIDTH).double()}),
    ],
)
def test_where_there_are_no_marks(options, more):
    made = layer(**options)
    with pytest.raises(ConfigurationError, match="global_attention_mask marks tokens of a text that is read both ways"):
        made(torch.zeros(1, 32, WIDTH).double(), global_attention_mask=torch.ones(1, 32), **more)


def test_a_compiled_graph_has_slots_for_the_most_marks():
    torch._dynamo.reset()
    made = layer()
    made.max_global_tokens = 6
    compiled = torch.compile(made, backend="eager", fullgraph=True, dynamic=True)
    for length in (40, 17, 29):
        hidden, marks = normal(generator(length), 2, length, WIDTH), (torch.arange(length) % 11 == 3).expand(2, -1)
        assert_close(compiled(hidden, global_attention_mask=marks), made(hidden, global_attention_mask=marks))
    with pytest.raises(RuntimeError, match="marks too many tokens"):
        compiled(hidden, global_attention_mask=torch.ones(2, 29, dtype=torch.bool))


def test_bfloat16_by_the_compiled_kernels():
    options = {"max_length": 256, "projected_length": 16, "attention_window": 16, "projection": "mean"}
    torch.manual_seed(0)
    made = longform.LinformerAttention(64, 2, **options).to(torch.bfloat16).eval()
    hidden, marks = normal(generator(6), 2, 200, 64, dtype=torch.bfloat16), (torch.arange(200) % 13 == 3).expand(2, -1)
    served = []
    for gradient in (False, True):
        with torch.set_grad_enabled(gradient), listening() as choices:
            out = made(hidden, global_attention_mask=marks)
        served.append({choice.kernel for choice in choices})
        exact = made.double()(hidden.double(), global_attention_mask=marks)
        made.to(torch.bfloat16)
        assert (out.double() - exact).norm() < 0.02 * exact.norm()
    assert served[0] != served[1]
