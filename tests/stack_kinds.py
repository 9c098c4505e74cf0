"""Stacks for vectors of every kind of projection, order and reach, wide enough for every kernel; texts and grids."""

from typing import Any

import torch
from torch import Tensor

from longform import LinformerEncoder
from longform.choices import POOLED, PROJECTIONS
from longform.layers.options import Projection
from strategies import randomised

WIDTH, HEADS, LENGTH = 64, 2, 90
SHORTENED = {"max_length": LENGTH, "projected_length": 15}
PLACED = ("by_place", "content_and_place")

STACKS: dict[str, dict[str, Any]] = {
    **{kind: {"projection": kind, **SHORTENED} for kind in (*PROJECTIONS, *PLACED)},
    **{f"{kind}-window": {"projection": kind, "attention_window": 8} for kind in POOLED},
    **{f"{kind}-causal": {"projection": kind, "attention_window": 8, "causal": True} for kind in POOLED},
    "layerwise": {"projection": Projection("linear", "layerwise"), **SHORTENED},
    "separate": {"projection": Projection("linear", "none"), **SHORTENED},
    "k of each head": {"projection": Projection("mean", "none"), "max_length": LENGTH, "projected_length": [15, 30]},
    "sinks": {"num_prefix_tokens": 2, "attention_window": 8, "projection": Projection("mean", memory_budget=6.0)},
    "selection": {"attention_window": 8, "selected_slots": 2},
    "rotary": {"positions": "rotary", "attention_window": 8, "num_key_value_heads": 1},
    "everything": {"attention_window": 48, "max_length": LENGTH},
    "short": {"max_length": 2 * LENGTH, "projected_length": LENGTH},
    "gated": {"gated": True, "activation": "silu", "norm": "rms_norm", "pre_norm": False, "positions": "sine"},
    "tile": {"tile": (2, 3)},
    "tile-window": {"tile": (2, 2), "attention_window": (2, 2)},
}


def stack(kind: str, **options: Any) -> LinformerEncoder:
    """Two random layers of ``kind``, in training mode."""
    torch.manual_seed(0)
    return randomised(LinformerEncoder(WIDTH, 2, HEADS, **STACKS[kind], **options)).train()


def texts(kind: str) -> tuple[Tensor, Tensor]:
    """Hidden states of two texts, or grids, and a mask of their shape: padding behind one of them, and a hole."""
    torch.manual_seed(1)
    shape = (2, 10, 9) if "tile" in STACKS[kind] else (2, LENGTH)
    mask = torch.ones(shape, dtype=torch.bool)
    mask.flatten(1)[1, 61:] = False
    return torch.randn(*shape, WIDTH), mask
