"""This process among those that train together."""

from typing import Any

from longform.errors import ConfigurationError, require
from longform.inference.loading import pick_device


def current_process(device: str = "auto") -> Any:
    """This process among those of ``torchrun`` or ``accelerate launch``, on ``device``: accelerate's PartialState.

    Raises ConfigurationError for a device that is not there (``pick_device``), and for a number of one.
    """
    chosen = pick_device(device)
    if chosen.index:
        raise ConfigurationError(
            f'device="{device}": a training takes the first one; CUDA_VISIBLE_DEVICES={chosen.index} makes it that one'
        )
    states = require("accelerate.state", extra="train")
    cpu = chosen.type == "cpu"
    process = states.PartialState(cpu=cpu)
    if process.device.type != chosen.type:  # an earlier training of this process was elsewhere
        states.AcceleratorState._reset_state(reset_partial_state=True)
        process = states.PartialState(cpu=cpu)
    return process
