"""Tiny random models, one of every kind that behaves differently, and batches of padded token ids."""

import copy
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from longform import LinformerConfig, LinformerModel

LONGEST = 32
KINDS = {
    "linear": {"projection": "linear"},
    "linear-none": {"projection": "linear", "projection_sharing": "none"},
    "linear-key_value": {"projection": "linear", "projection_sharing": "key_value"},
    "linear-layerwise": {"projection": "linear", "projection_sharing": "layerwise"},
    "random": {"projection": "random"},
    "mean": {"projection": "mean"},
    "weighted_mean": {"projection": "weighted_mean"},
    "weighted_mean-convolution": {"projection": "weighted_mean", "short_convolution": 5},
    "weighted_mean-window": {
        "projection": "weighted_mean",
        "attention_window": 8,
        "memory_budget": 6.0,
        "sink_tokens": 2,
        "short_convolution": 3,
    },
    "weighted_mean-rotary": {"projection": "weighted_mean", "attention_window": 8, "rope_theta": 50.0},
    "max": {"projection": "max"},
    "convolution": {"projection": "convolution"},
    "by_place": {"projection": "by_place"},
    "content_and_place": {"projection": "content_and_place"},
    "latent": {"projection": "latent"},
    "latent-sinks": {"projection": "latent", "sink_tokens": 2, "short_convolution": 3},
    "latent-rotary": {"projection": "latent", "rope_theta": 50.0, "num_key_value_heads": 1},
    "k of each head": {"projection": "mean", "projection_sharing": "none", "projected_length": [[8, 4], [4, 8]]},
    "mean-window": {"projection": "mean", "attention_window": 8, "memory_budget": 6.0},
    "max-window": {"projection": "max", "attention_window": 8},
    "convolution-window": {"projection": "convolution", "attention_window": 8},
    "mean-sinks": {"projection": "mean", "sink_tokens": 2},
    "mean-window-sinks": {"projection": "mean", "attention_window": 8, "memory_budget": 6.0, "sink_tokens": 2},
    "mean-window-distances": {
        "projection": "mean",
        "attention_window": 8,
        "memory_budget": 6.0,
        "sink_tokens": 1,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 8,
    },
    "mean-window-selection": {
        "projection": "mean",
        "attention_window": 4,
        "selected_slots": 2,
        "memory_budget": 6.0,
        "sink_tokens": 1,
    },
    "rotary-window-selection": {
        "projection": "weighted_mean",
        "attention_window": 4,
        "selected_slots": 1,
        "rope_theta": 50.0,
        "num_key_value_heads": 1,
    },
    "rotary": {"projection": "linear", "rope_theta": 50.0},
    "rotary-window": {
        "projection": "mean",
        "attention_window": 8,
        "memory_budget": 6.0,
        "sink_tokens": 1,
        "rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": 0.5},
        "num_key_value_heads": 1,
        "norm_type": "rms_norm",
    },
    "rotary-local": {  # as ModernBERT is built
        "projection": "mean",
        "attention_window": 8,
        "sink_tokens": 1,
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 11,
        "rope_parameters": {"full_attention": {"rope_theta": 50.0}, "sliding_attention": {"rope_theta": 9.0}},
        "normalization": "pre",
        "skip_first_prenorm": True,
        "is_gated_act": True,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "prediction_head": "modernbert",
        "classifier_bias": False,
    },
    "narrow heads": {
        "projection": "mean",
        "attention_window": 8,
        "memory_budget": 6.0,
        "sink_tokens": 2,
        "head_dim": 2,
    },
    "wide heads": {"projection": "linear", "head_dim": 6},
    "wide rotary heads": {"projection": "mean", "attention_window": 8, "head_dim": 6, "rope_theta": 50.0},
    "window over everything": {"projection": "mean", "attention_window": 16},
}

AT_EVERY_RUN = (  # compiled, exported
    "linear", "mean-window", "mean-window-distances", "mean-window-selection", "weighted_mean-window",
)  # fmt: skip


def compiled_kinds(kinds: Iterable[str]) -> list[Any]:
    """Parameters of a test: a graph takes seconds, so that most kinds are compiled in the nightly tests alone."""
    return [kind if kind in AT_EVERY_RUN else pytest.param(kind, marks=pytest.mark.nightly) for kind in kinds]


SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}


def config(kind: str, **options: Any) -> LinformerConfig:
    """Of ``kind``: 40 words, 32 positions, 8 slots, no taps; ``options`` come last."""
    settings = {"projected_length": 8, "initializer_range": 0.5, "max_position_embeddings": LONGEST}
    settings |= {"short_convolution": 0}
    settings |= SIZES | KINDS[kind] | options
    for name in ("projected_length", "layer_types"):
        if isinstance(settings.get(name), list):
            settings[name] = settings[name][: settings["num_hidden_layers"]]
    return LinformerConfig(vocab_size=40, **copy.deepcopy(settings))


def model(kind: str, cls: type = LinformerModel, **options: Any) -> Any:
    """A random model that is not trained; what starts at zero or at a mean is random too."""
    made = cls(config(kind, **options)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith(
                ("memory_bias", "kernel", "matrix", "bias", "convolution.weight", "latents", "place_share")
            ):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def checkpointed(made: Any, *, reentrant: bool) -> Any:
    """``made`` itself, with Hugging Face's gradient checkpointing."""
    name = "activation_checkpointing_enable"  # transformers 5.2x; before: gradient_checkpointing_enable
    getattr(made, name if hasattr(made, name) else "gradient_checkpointing_enable")({"use_reentrant": reentrant})
    made.enable_input_require_grads()
    return made


def text(batch: int, length: int) -> dict[str, Tensor]:
    """Each row one token shorter than the one before."""
    mask = (torch.arange(length) < torch.arange(length, length - batch, -1).clamp(min=1)[:, None]).long()
    return {"input_ids": torch.randint(5, 40, (batch, length)), "attention_mask": mask}
