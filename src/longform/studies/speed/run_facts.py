"""What a measurement of the laboratory ran on and with, as its report says it."""

import torch

from longform.inference.loading import pick_device
from longform.runs.facts import environment
from longform.runs.records import commit


def run_facts(device: str) -> dict[str, str]:
    """Machine, versions and commit, of a float32 model; ``device`` as the command line has it.

    Raises ConfigurationError for a device that is not here.
    """
    return {**environment(pick_device(device), torch.float32), "code": commit()}
