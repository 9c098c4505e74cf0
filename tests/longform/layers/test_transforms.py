"""Layers under torch.func, forward-mode differentiation and double backward: the formula's numbers."""

import pytest
import torch
from attention_kinds import KINDS, Kind, Layer
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap

from longform import kernels
from strategies import generator, normal
from tolerances import assert_close

SOME = [kind for kind in KINDS if kind.sharing == "headwise"]


def texts(kind: Kind, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return normal(generator(2), 3, kind.longest, kind.width).to(dtype)


@pytest.mark.parametrize("kind", SOME, ids=str)
def test_gradients_of_each_text_by_vmap(kind):
    made, hidden = Layer(kind, seed=1), texts(kind)
    weights = {name: weight.detach() for name, weight in made.layer.named_parameters()}

    def loss(given, text):
        marks = {"global_attention_mask": made.marks(text[None])}
        return functional_call(made.layer, given, (text[None],), marks).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0), randomness="error")(weights, hidden)
    for i, text in enumerate(hidden):
        made.layer.zero_grad()
        made(text[None], None).square().sum().backward()
        for name, weight in made.layer.named_parameters():
            assert_close(found[name][i], weight.grad)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own rules for tangents
@pytest.mark.parametrize("kind", SOME, ids=str)
def test_tangents_of_a_frozen_layer(kind):
    made, hidden = Layer(kind, seed=1, dtype=torch.float32), texts(kind, torch.float32)
    made.layer.requires_grad_(False)
    direction = normal(generator(3), *hidden.shape).float()
    twin = Layer(kind, seed=1)
    step = 1e-6
    moved = (twin(hidden.double() + step * direction, None) - twin(hidden.double() - step * direction, None)) / step / 2
    with forward_ad.dual_level():
        out = forward_ad.unpack_dual(made(forward_ad.make_dual(hidden, direction), None))
    assert out.tangent is not None
    torch.testing.assert_close(out.tangent, moved.detach().float(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", SOME, ids=str)
def test_a_second_derivative(kind):
    """Of the gradient by the weights, the hidden states and the output's gradient, by the latter two."""
    found = _second(kind)
    with kernels.use(attention="formula", window="formula"):
        expected = _second(kind)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def _second(kind: Kind) -> list[torch.Tensor]:
    made, hidden, source = Layer(kind, seed=1), texts(kind).requires_grad_(), generator(4)
    slope = normal(source, *hidden.shape).requires_grad_()
    leaves = [hidden, *(weight for weight in made.layer.parameters() if weight.requires_grad)]
    first = torch.autograd.grad(made(hidden, None), leaves, slope, create_graph=True)
    total = sum((x * normal(source, *x.shape)).sum() for x in first)
    return [*first, *torch.autograd.grad(total, (slope, *leaves), allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("kind", SOME, ids=str)
def test_many_gradients_at_once(kind):
    made, hidden = Layer(kind, seed=1), texts(kind).requires_grad_()
    out = made(hidden, None)
    slopes = normal(generator(4), 4, *out.shape)
    found = torch.autograd.grad(out, hidden, slopes, is_grads_batched=True, retain_graph=True)[0]
    for one, slope in zip(found, slopes, strict=True):
        assert_close(one, torch.autograd.grad(out, hidden, slope, retain_graph=True)[0])
