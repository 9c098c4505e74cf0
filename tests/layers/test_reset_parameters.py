"""Modules made on the device "meta": reset_parameters of all that is in them sets every number, as FSDP asks."""

import pytest
import torch
from model_kinds import KINDS as MODELS
from model_kinds import config
from torch import nn
from transformers import PreTrainedModel

import longform
from longform import LinformerEncoder, LinformerEncoderLayer, LinformerMultiheadAttention
from longform.choices import POOLED, PROJECTIONS
from longform.layers.geometry import Projection
from longform.layers.local_attention import LocalAttention

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
