"""Rotary positions as a configuration describes them, in Hugging Face's ``rope_parameters``."""

import copy
from typing import Any

import torch
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from longform.functional.positions.rotary import plain_frequencies
from longform.layers.rotary import RotaryPositions


def rotary_positions(config: PreTrainedConfig, layer_type: str) -> RotaryPositions:
    """Rotary positions of layers of ``layer_type``, which may have rope_parameters of their own.

    "default" turns the pair i of r by rope_theta^(-i / r) radians a token; the other kinds are Hugging Face's.
    """
    nested = layer_type in config.rope_parameters
    parameters: dict[str, Any] = config.rope_parameters[layer_type] if nested else config.rope_parameters
    if parameters["rope_type"] != "default":
        make, shown = ROPE_INIT_FUNCTIONS[parameters["rope_type"]], copy.copy(config)
        shown.head_dim = config.head_size  # some of them compute with None
        frequencies, scaling = make(shown, torch.device("cpu"), layer_type=layer_type if nested else None)
        return RotaryPositions(tuple(frequencies.tolist()), scaling=scaling)
    features = int(config.head_size * parameters.get("partial_rotary_factor", 1.0))
    return RotaryPositions(plain_frequencies(features, parameters["rope_theta"]))
