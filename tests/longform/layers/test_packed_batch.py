"""Batches without padding: each document is read as it is on its own."""

import pytest
import torch
from gradients import assert_near
from hypothesis import given
from hypothesis import strategies as st
from stack_kinds import LENGTH, STACKS, WIDTH, stack
from torch import Tensor

from longform import LinformerEncoder
from longform.errors import ConfigurationError, InputError
from longform.layers.packed_batch import documents_of, similar
from strategies import randomised

LENGTHS = (5, 0, LENGTH, 64, 33, 1, 88, 64, 61)
KINDS = [kind for kind in STACKS if "tile" not in kind]


def documents(lengths: tuple[int, ...] = LENGTHS, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(length, WIDTH, dtype=dtype) for length in lengths]


def ends(lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def double(kind: str, **options: object) -> LinformerEncoder:
    return stack(kind, **options).double().eval()


def alone(model: LinformerEncoder, texts: list[Tensor]) -> Tensor:
    return torch.cat([model(text) if len(text) else text for text in texts])


@pytest.mark.parametrize("kind", KINDS)
def test_each_document_is_read_as_if_alone_and_so_are_gradients(kind):
    model, found = double(kind), []
    for read in (lambda x: model(x, cu_seqlens=ends()), lambda x: alone(model, list(x.split(LENGTHS)))):
        model.zero_grad()
        x = torch.cat(documents()).requires_grad_()
        out = read(x)
        out.backward(torch.arange(out.numel(), dtype=torch.float64).cos().view_as(out))
        found.append([out, x.grad, *(weight.grad for weight in model.parameters() if weight.grad is not None)])
    assert_near(*found, torch.float64)


@pytest.mark.parametrize("kind", ["weighted_mean", "mean-window", "mean-causal", "rotary"])
def test_nested_tensors_come_back_nested(kind):
    model, texts = double(kind), documents()
    nested = torch.nested.nested_tensor(texts, layout=torch.jagged)
    out = model(nested, output_hidden_states=True)
    assert_near([out.last_hidden_state.values()], [alone(model, texts)], torch.float64)
    assert [x.is_nested for x in out.hidden_states] == [True] * 3
    assert (nested + out.last_hidden_state).is_nested  # of one shape, so that sums with the input are possible


def test_nan_in_one_document_stays_there():
    model, texts = double("mean-window"), documents()
    texts[3][7] = torch.nan
    out = model(torch.cat(texts), cu_seqlens=ends()).split(LENGTHS)
    assert [bool(x.isnan().any()) for x in out] == [number == 3 for number in range(len(LENGTHS))]


def test_marked_tokens():
    model, texts = double("mean-window"), documents()
    marks = [torch.arange(len(text)) % 10 == 3 for text in texts]
    expected = torch.cat([
        model(text[None], global_attention_mask=mark[None])[0] if len(text) else text
        for text, mark in zip(texts, marks, strict=True)
    ])  # fmt: skip
    found = model(torch.cat(texts), cu_seqlens=ends(), global_attention_mask=torch.cat(marks))
    nested = torch.nested.nested_tensor(texts, layout=torch.jagged)
    marked = torch.nested.nested_tensor_from_jagged(torch.cat(marks), nested.offsets())
    also = model(nested, global_attention_mask=marked).values()
    assert_near([found, also], [expected, expected], torch.float64)


@pytest.mark.parametrize("positions", ["learned", "sine"])
def test_places_count_from_the_beginning_of_each_document(positions):
    torch.manual_seed(0)
    model = randomised(LinformerEncoder(WIDTH, 1, 2, LENGTH, positions=positions)).double()
    found = model(torch.cat(documents()), cu_seqlens=ends())
    assert_near([found], [alone(model, documents())], torch.float64)


@pytest.mark.parametrize("half", [False, True])
def test_layers_computed_again(half):
    gradients = []
    for recompute in (False, True):
        model = stack("mean-window", gradient_checkpointing=recompute)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            model(torch.cat(documents(dtype=torch.float32)), cu_seqlens=ends()).square().sum().backward()
        gradients.append([weight.grad for weight in model.parameters() if weight.grad is not None])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_every_token_is_read_once_in_its_place(lengths):
    tokens = sum(lengths)
    x = torch.arange(tokens)[None]
    made = documents_of(ends(tuple(lengths)), x)
    assert torch.equal(made.each(lambda x, group: x, x[..., None])[0, :, 0], x[0])
    assert made.places.tolist() == [place for length in lengths for place in range(length)]
    assert sorted(number for group in similar(lengths) for number in group if lengths[number]) == [
        number for number, length in enumerate(lengths) if length
    ]


def test_what_cannot_be():
    model, x = double("mean-window"), torch.cat(documents())
    for wrong in (ends() + 1, ends()[:-1], ends().flip(0), ends().float(), ends()[None], ends()[:1]):
        with pytest.raises(InputError, match="cu_seqlens"):
            model(x, cu_seqlens=wrong)
    with pytest.raises(InputError, match="max_seqlen is 60"):
        model(x, cu_seqlens=ends(), max_seqlen=60)
    with pytest.raises(InputError, match=r"expected with cu_seqlens .* = \(T, D\)"):
        model(x[None], cu_seqlens=ends())
    with pytest.raises(InputError, match="without padding take no mask"):
        model(x, cu_seqlens=ends(), attention_mask=torch.ones(len(x)))
    with pytest.raises(InputError, match="give no attention weights"):
        model(x, cu_seqlens=ends(), output_attentions=True)
    with pytest.warns(UserWarning, match="prototype"), pytest.raises(InputError, match="to_padded_tensor"):
        model(torch.nested.nested_tensor(documents(), layout=torch.strided))
    with pytest.raises(InputError, match="at most max_length=90"):
        double("linear")(torch.cat([x, x]), cu_seqlens=torch.tensor([0, len(x), 2 * len(x)]))
    with pytest.raises(ConfigurationError, match="tile=None"):
        double("tile")(x, cu_seqlens=ends())
