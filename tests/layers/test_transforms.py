"""Layers under torch.func, forward-mode differentiation and double backward: the plain way's numbers, or an error."""

import pytest
import torch
from attention_kinds import KINDS, Kind, Layer
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from strategies import generator, normal
from tolerances import assert_close

SOME = [kind for kind in KINDS if kind.sharing == "headwise"]


def texts(kind: Kind, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return normal(generator(2), 3, kind.longest, kind.width).to(dtype)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch's attention under vmap
@pytest.mark.parametrize("kind", SOME, ids=str)
def test_gradients_of_each_text_by_vmap(kind):
    made, hidden = Layer(kind, seed=1), texts(kind)
    weights = {name: weight.detach() for name, weight in made.layer.named_parameters()}

    def loss(given, text):
        return functional_call(made.layer, given, (text[None],)).square().sum()

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
    with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):  # torch's fused kernels raise that they know none
        out = forward_ad.unpack_dual(made(forward_ad.make_dual(hidden, direction), None))
    assert out.tangent is not None
    torch.testing.assert_close(out.tangent, moved.detach().float(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", [kind for kind in SOME if kind.budget], ids=str)
def test_a_second_derivative_is_refused_and_not_wrong(kind):
    made, hidden = Layer(kind, seed=1), texts(kind)
    bias = made.layer.memory_bias
    first = torch.autograd.grad(made(hidden, None).square().sum(), bias, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()
