"""Parameters: their groups, each trained one once, and reset_parameters of modules made on the device "meta"."""

from collections import Counter

import pytest
import torch
from model_kinds import KINDS as MODELS
from model_kinds import config, model
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import PreTrainedModel, get_scheduler

import longform
from longform import LinformerEncoder, LinformerEncoderLayer, LinformerMultiheadAttention
from longform.choices import POOLED, PROJECTIONS
from longform.layers.local_attention import LocalAttention
from longform.layers.options import Projection
from longform.layers.sequence_projection import Learned

LAYER = {"max_length": 16, "projected_length": 4}


def _groups_of(module: nn.Module, **options: float) -> dict[str, tuple[float, float | None]]:
    """Learning rate and weight decay by the parameter's name."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    groups = longform.parameter_groups(module, lr=0.1, **options)
    times = Counter(parameter for group in groups for parameter in group["params"])
    assert max(times.values()) == 1
    return {names[p]: (group["lr"], group.get("weight_decay")) for group in groups for p in group["params"]}


@pytest.mark.parametrize("projection", ["linear", "convolution"])
def test_projections_have_a_rate_and_neither_they_nor_vectors_decay(projection):
    layer = longform.LinformerAttention(8, 2, projection=projection, **LAYER)
    found = _groups_of(nn.ModuleDict({"attention": layer, "norm": nn.LayerNorm(8)}), weight_decay=0.5)
    own = {name for name in found if ".groups." in name}
    assert len(own) == 2
    multiplier = layer.groups[0].learning_rate_multiplier
    for name, (rate, decay) in found.items():
        assert rate == pytest.approx(0.1 * multiplier if name in own else 0.1)
        assert decay == (0.5 if name.endswith("weight") and "norm" not in name else 0.0)
    assert len(found) == len(list(layer.parameters())) + 2


def test_without_a_weight_decay_it_is_the_optimizers():
    layer = longform.LinformerAttention(8, 2, projection="linear", **LAYER)
    optimizer = torch.optim.AdamW(longform.parameter_groups(layer, lr=0.1), weight_decay=0.3)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["linear", "linear-layerwise", "convolution-window", "mean"])
def test_each_trained_parameter_of_a_model_is_in_one_group(kind):
    made = model(kind)
    made.embeddings.requires_grad_(False)
    found = _groups_of(made, weight_decay=0.5)
    assert set(found) == {name for name, p in made.named_parameters() if p.requires_grad}
    own = {name for name, (_, decay) in found.items() if decay == 0.0 and made.get_parameter(name).ndim > 1}
    assert len(own) == sum(isinstance(module, Learned) for module in made.modules())


def test_frozen_projections_are_left_out():
    layer = longform.LinformerAttention(8, 2, projection=longform.Projection("linear", frozen=True), **LAYER)
    assert not [name for name in _groups_of(layer) if ".groups." in name or name.startswith("groups")]


@pytest.mark.parametrize("options", [longform.Projection("linear", init="normal"), "convolution"])
def test_other_projections_learn_at_the_networks_rate(options):
    layer = longform.LinformerAttention(8, 2, projection=options, **LAYER)
    assert {rate for rate, _ in _groups_of(layer).values()} == {0.1}


def test_a_projection_may_be_given_another_rate():
    layer = longform.LinformerAttention(8, 2, projection="linear", **LAYER)
    layer.groups[0].learning_rate_multiplier = 0.5
    assert _groups_of(layer)["groups.0.key_projection.matrix"][0] == 0.05


def test_the_innermost_multiplier_counts_for_all_that_a_module_holds():
    class Slow(nn.Module):
        learning_rate_multiplier = 0.5

        def __init__(self) -> None:
            super().__init__()
            self.scores, self.attention = (
                nn.Linear(3, 3),
                longform.LinformerAttention(8, 2, projection="linear", **LAYER),
            )

    found = _groups_of(nn.ModuleDict({"slow": Slow(), "plain": nn.Linear(3, 3)}), weight_decay=0.5)
    assert found["slow.scores.weight"] == found["slow.attention.query.weight"] == (0.05, 0.0)
    assert found["plain.weight"] == (0.1, 0.5)
    assert found["slow.attention.groups.0.key_projection.matrix"][0] < 0.05


@pytest.mark.parametrize("kind", ["linear", "linear-layerwise", "convolution-window"])
@pytest.mark.parametrize("adapter", ["lora", "dora"])
def test_adapters_learn_at_the_networks_rate(kind, adapter):
    """Matrices of LoRA inside a projection are none of its entries, and one rate is right for all of them."""
    parameters = sorted({name.rpartition(".")[2] for name, _ in model(kind).named_parameters() if "projection" in name})
    places = {"target_modules": ["query", "value"], "target_parameters": parameters if adapter == "lora" else None}
    adapted = get_peft_model(model(kind), LoraConfig(r=2, use_dora=adapter == "dora", **places))
    found = _groups_of(adapted, weight_decay=0.5)
    assert set(found) == {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert any(".groups." in name or "projection" in name for name in found) == (adapter == "lora")
    vectors = {name for name, p in adapted.named_parameters() if p.ndim == 1}
    assert {name: (0.1, 0.0 if name in vectors else 0.5) for name in found} == found


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup", "polynomial"])
def test_a_schedule_keeps_the_ratio(schedule):
    layer = longform.LinformerAttention(8, 2, projection="linear", **LAYER)
    optimizer = torch.optim.AdamW(longform.parameter_groups(layer, lr=0.1), lr=0.1)
    before = [group["lr"] for group in optimizer.param_groups]
    rates = get_scheduler(schedule, optimizer, num_warmup_steps=2, num_training_steps=8)
    for _ in range(5):
        optimizer.step()
        rates.step()
        now = [group["lr"] for group in optimizer.param_groups]
        assert [rate / now[0] for rate in now] == pytest.approx([rate / before[0] for rate in before])


def test_a_step_of_adam_moves_a_projection_by_its_own_rate():
    layer = longform.LinformerAttention(8, 2, projection="linear", **LAYER)
    matrix = layer.groups[0].key_projection
    entry = 1 / 4  # runs of 16 / 4 tokens
    before, weight = matrix().detach().clone(), layer.query.weight.detach().clone()
    layer(torch.randn(2, 16, 8)).square().sum().backward()
    torch.optim.AdamW(longform.parameter_groups(layer, lr=0.1)).step()
    moved = (matrix().detach() - before).abs()
    assert moved.max().item() == pytest.approx(0.1 * entry / 32, rel=1e-2)
    assert (layer.query.weight.detach() - weight).abs().max().item() == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("made", [
    lambda: longform.LinformerAttention(8, 2, projection="linear", **LAYER),
    lambda: longform.LinformerModel(config("linear", max_position_embeddings=16, projected_length=4)),
])  # fmt: skip
def test_new_projections_begin_as_means_of_runs(made):
    matrices = [module for module in made().modules() if isinstance(module, Learned)]
    assert matrices
    for matrix in matrices:
        assert matrix()[0, 1].tolist() == [0.0] * 4 + [0.25] * 4 + [0.0] * 8


SIZES = {"max_length": 64, "projected_length": 8}
ENCODERS = {
    **{p: {"projection": p} for p in PROJECTIONS},
    **{f"{p}, window": {"projection": p, "attention_window": 16} for p in POOLED},
    "causal": {"causal": True, "projection": "mean"},
    "layerwise": {"projection": Projection("linear", "layerwise")},
    "each head": {"projection": Projection("linear", "none", bias=True)},
    "learned positions": {"positions": "learned"},
    "rotary, gated, RMS": {"positions": "rotary", "gated": True, "norm": "rms_norm"},
    "tiles": {"projection": "mean", "tile": (2, 2), "attention_window": (4, 4), "projected_length": None},
}
HEADS = [name for name in dir(longform) if name.startswith("LinformerFor") and not name.endswith("CausalLM")]
MADE = {
    **{f"encoder, {n}": lambda o=o: LinformerEncoder(16, 1, 4, **SIZES | o) for n, o in ENCODERS.items()},
    "attention of neighbours": lambda: LocalAttention(16, 4, max_length=64, reach=4),
    "multi-head": lambda: LinformerMultiheadAttention(16, 4, attention_window=4),
    "multi-head, widths": lambda: LinformerMultiheadAttention(16, 4, kdim=12, vdim=10, short_convolution=3),
    "torch's layer": lambda: LinformerEncoderLayer(16, 4, 32),
    **{f"model, {kind}": lambda kind=kind: longform.LinformerModel(config(kind)) for kind in MODELS},
    **{name: lambda name=name: getattr(longform, name)(config("mean-window")) for name in HEADS},
}


def floats(module: nn.Module) -> dict[str, torch.Tensor]:
    return {n: x for n, x in [*module.named_parameters(), *module.named_buffers()] if x.is_floating_point()}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@torch.no_grad()
def test_every_number_is_set(make):
    """By zeros where a module begins with zeros or ones, else by numbers as large as those that it begins with."""
    usual = floats(make())
    with torch.device("meta"):
        module = make()
    module.to_empty(device="cpu")
    for x in floats(module).values():
        x.fill_(torch.nan)
    for part in module.modules():
        getattr(part, "reset_parameters", lambda: None)()
    for name, x in floats(module).items():
        assert x.isfinite().all(), name
        if not isinstance(module, PreTrainedModel) and "out_proj.bias" not in name:
            torch.testing.assert_close(x.std(correction=0), usual[name].std(correction=0), rtol=0.7, atol=1e-6)
