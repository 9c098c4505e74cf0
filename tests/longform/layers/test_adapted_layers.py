"""A key or value layer that is more than its weights is called, also where the memory would take the weights alone."""

import copy

import accelerate
import pytest
import torch
from attention_kinds import KINDS, Layer
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from strategies import generator, normal
from tolerances import assert_close

BATCH = 3


class LowRank(nn.Module):
    """An adapter as PEFT makes them: the layer, and beside it a product of two narrow ones."""

    def __init__(self, base: nn.Linear, seed: int) -> None:
        super().__init__()
        self.base = base
        sizes = enumerate((base.in_features, base.out_features))
        self.down, self.up = (nn.Parameter(normal(generator(seed + i), size, 2)) for i, size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down @ self.up.T

    def merged(self) -> nn.Linear:
        made = copy.deepcopy(self.base)
        with torch.no_grad():
            made.weight += self.up @ self.down.T
        return made


def given(layer: Layer) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([layer.kind.longest, layer.kind.longest - 3, 1])
    hidden = normal(generator(5), BATCH, layer.kind.longest, layer.kind.width)
    return hidden, torch.arange(layer.kind.longest) < lengths[:, None]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_adapter_gives_what_its_merged_weights_give(kind):
    made = Layer(kind, seed=1)
    hidden, mask = given(made)
    adapters = {name: LowRank(getattr(made.layer, name), seed=7) for name in ("key", "value")}
    for name, adapter in adapters.items():
        setattr(made.layer, name, adapter.merged())
    expected, whole = made(hidden, mask), made(hidden, None)
    for name, adapter in adapters.items():
        setattr(made.layer, name, adapter)
    blank = torch.where(mask[..., None], hidden, torch.nan)
    assert_close(made(blank, mask)[mask], expected[mask])
    assert_close(made(hidden, None), whole)
    made(hidden, mask).square().sum().backward()
    for adapter in adapters.values():
        assert adapter.up.grad.abs().max() > 1e-6
        assert adapter.down.grad.abs().max() > 1e-6


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.window is None], ids=str)
def test_hooks_of_a_layer_are_called_and_may_change_its_output(kind):
    made = Layer(kind, seed=1)
    hidden, mask = given(made)
    twice = copy.deepcopy(made.layer.value)
    with torch.no_grad():
        twice.weight *= 2
        twice.bias *= 2
    own, made.layer.value = made.layer.value, twice
    expected = made(hidden, mask)
    made.layer.value = own
    own.register_forward_hook(lambda _module, _given, out: 2 * out)
    assert_close(made(hidden, mask), expected)


@pytest.mark.parametrize("change", [lambda x: prune.l1_unstructured(x, "weight", 5), parametrizations.weight_norm])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.window is None][::3], ids=str)
def test_pruned_and_parametrised_weights_are_those_of_now(kind, change):
    made = Layer(kind, seed=1)
    hidden, mask = given(made)
    for name in ("key", "value"):
        change(getattr(made.layer, name))
    for _ in range(2):  # the weight is formed anew in each pass
        made(hidden, mask).square().sum().backward()
    with torch.no_grad():
        before = made(hidden, mask)
        for parameter in made.layer.value.parameters():
            parameter *= 3.0
        assert (made(hidden, mask) - before).abs().max() > 0.1


# With a window the layer has a parameter itself, and accelerate would then move the projection that it is given.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not (kind.window and kind.sharing == "layerwise")], ids=str)
def test_offloaded_weights(kind):
    made = Layer(kind, seed=1)
    hidden, mask = given(made)
    with torch.no_grad():
        expected = made(hidden, mask)
        for part in (made.layer, made.shared):
            if part is not None:
                accelerate.cpu_offload(part, execution_device=torch.device("cpu"))
        assert made.layer.key.weight.is_meta
        assert_close(made(hidden, mask)[mask], expected[mask])
