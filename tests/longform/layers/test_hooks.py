"""Hooks of torch on the linear layers of every kind of attention: each that gets a gradient is called, by all hooks."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from longform import LinformerEncoder, LinformerEncoderLayer, Projection
from tolerances import assert_close

LENGTH, WIDTH = 32, 16
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "weighted mean": {"projection": "weighted_mean", "short_convolution": 0, "num_prefix_tokens": 2},
    "mean": {"projection": "mean"},
    "max": {"projection": "max"},
    "convolution": {"projection": "convolution", "max_length": LENGTH, "projected_length": 8},
    "linear": {"projection": "linear", "max_length": LENGTH, "projected_length": 8},
    "linear, headwise": {"projection": Projection("linear", sharing="headwise"), "max_length": LENGTH},
    "linear, key_value": {"projection": Projection("linear", sharing="key_value"), "max_length": LENGTH},
    "linear, layerwise": {"projection": Projection("linear", sharing="layerwise"), "max_length": LENGTH},
    "random": {"projection": "random", "max_length": LENGTH, "projected_length": 8},
    "by place": {"projection": "by_place", "max_length": LENGTH, "projected_length": 8},
    "content and place": {"projection": "content_and_place", "max_length": LENGTH, "projected_length": 8},
    "every token": {"projection": "mean", "max_length": LENGTH, "projected_length": LENGTH},
    "k of each head": {"projection": Projection("mean", sharing="none"), "max_length": LENGTH,
                       "projected_length": [16, 8, 16, 8]},
    "window": {"attention_window": 8},
    "window of means": {"projection": "mean", "attention_window": 8},
    "window across everything": {"attention_window": 16},
    "selection": {"projection": "mean", "attention_window": 8, "selected_slots": 2},
    "causal": {"causal": True, "attention_window": 8},
    "tile": {"tile": (2, 2)},
    "tile, window": {"tile": (2, 2), "attention_window": (4, 4)},
    "shared heads": {"num_key_value_heads": 2},
    "shared heads, linear": {"num_key_value_heads": 2, "projection": "linear", "max_length": LENGTH},
    "keys are values": {"share_kv": True},
    "rotary": {"positions": "rotary"},
    "gated": {"gated": True, "activation": "silu", "norm": "rms_norm"},
    "checkpointed": {"gradient_checkpointing": True},
}  # fmt: skip
OWN = (
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook",
)  # fmt: skip
OF_ALL = tuple(name.replace("register_", "register_module_") for name in OWN)


def made(kind: str) -> tuple[nn.Module, Tensor]:
    """An encoder that trains, and its input."""
    torch.manual_seed(0)
    shape = (2, 4, 8, WIDTH) if "tile" in kind else (2, LENGTH, WIDTH)
    return LinformerEncoder(WIDTH, 1, 4, **KINDS[kind]).double().train(), torch.randn(shape, dtype=torch.float64)


def linears(model: nn.Module) -> dict[nn.Module, str]:
    return {part: name for name, part in model.named_modules() if isinstance(part, nn.Linear)}


@contextmanager
def counted(model: nn.Module, hook: str) -> Iterator[Counter[str]]:
    """How often ``hook`` is called for each linear layer: one on the layer, or one on all modules."""
    found, names = Counter[str](), linears(model)

    def seen(part: nn.Module, *_: Any) -> None:
        if part in names:
            found[names[part]] += 1

    on_all = getattr(all_modules, hook, None)
    handles = [on_all(seen)] if on_all else [getattr(part, hook)(seen) for part in names]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def trained(model: nn.Module, x: Tensor, **inputs: Any) -> list[Tensor]:
    """The output, and the gradients of the input and of all parameters, in their order."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    out = model(x, **inputs)
    out.square().sum().backward()
    return [out.detach(), *(y.grad for y in (x, *model.parameters()) if y.grad is not None)]


# Of hooks on all modules torch says so where a module's input has no gradient: that of a learned E is None.
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padded", [False, True])
def test_every_layer_that_gets_a_gradient_is_called(kind, padded):
    model, x = made(kind)
    inputs = {"key_padding_mask": torch.rand(x.shape[:-1]) < 0.2} if padded else {}
    expected, calls = trained(model, x, **inputs), {}
    with_gradient = {name for part, name in linears(model).items() if part.weight.grad is not None}
    assert len(with_gradient) >= 6 - KINDS[kind].get("share_kv", False)
    for hook in (*OWN, *OF_ALL):
        with counted(model, hook) as calls[hook]:
            found = trained(model, x, **inputs)
        assert set(calls[hook]) >= with_gradient, hook
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, scope="model")
    for hook in OWN:
        assert calls[hook] == calls[hook.replace("register_", "register_module_")], hook
    if kind != "checkpointed":  # which calls a layer forward twice
        assert calls[OWN[0]] == calls[OWN[1]]
    assert all(calls[OWN[2]][name] == calls[OWN[3]][name] for name in with_gradient)
    for one, other in zip(trained(model, x, **inputs), expected, strict=True):
        assert torch.equal(one, other)  # no hook is left


@pytest.mark.parametrize("change", [lambda x: 2.0 * x, lambda x: x.clone().zero_()])
@pytest.mark.parametrize("kind", ["default", "mean", "linear", "by place", "tile"])
def test_what_a_backward_hook_changes_is_taken(kind, change: Callable[[Tensor], Tensor]):
    """A gradient that the hook of a value's layer changes is that of its weight times as much."""
    model, x = made(kind)
    trained(model, x)
    value = model.layers[0].attention.value
    own = value.weight.grad.clone()
    value.register_full_backward_pre_hook(lambda _, slopes: tuple(map(change, slopes)))
    trained(model, x)
    assert_close(value.weight.grad, change(own), scope="model")


def test_torchs_stand_ins():
    torch.manual_seed(0)
    layer = LinformerEncoderLayer(WIDTH, 4, 64, batch_first=True, dropout=0.0)
    x = torch.randn(2, LENGTH, WIDTH)
    trained(layer, x)
    for hook in (*OWN, *OF_ALL):
        with counted(layer, hook) as found:
            trained(layer, x)
        assert found == {"self_attn.groups.0.scores": 1, "self_attn.out_proj": 1, "linear1": 1, "linear2": 1}, hook


PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm)


class Products(TorchDispatchMode):
    """Multiply-adds of matrix products, counted where no module has a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in PRODUCTS:
            self.found += 2 * out.numel() * args[-2].shape[-1]
        return out


@pytest.mark.parametrize("kind", ["default", "mean", "linear"])
@torch.no_grad()
def test_a_flop_counter_counts_what_runs_without_it(kind):
    """It has hooks on all modules, which ask for nothing."""
    model, x = made(kind)
    attention = model.layers[0].attention
    with Products() as plain:
        attention(x)
    with FlopCounterMode(display=False) as counter:
        attention(x)
    counts = counter.get_flop_counts()["Global"]
    assert sum(counts[product] for product in PRODUCTS if product in counts) == plain.found > 0
