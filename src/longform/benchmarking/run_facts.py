"""What a measurement of the laboratory ran on and with, as its report says it."""

import torch

from longform.benchmarking.records import commit
from longform.evaluation.loading import pick_device
from longform.training.environment import environment


def run_facts(device: str, dtype: torch.dtype = torch.float32) -> dict[str, str]:
    """Machine, versions and commit; ``device`` as the command line has it, ``dtype`` of the model's products.

    Raises ConfigurationError for a device that is not here.
    """
    return {**environment(pick_device(device), dtype), "code": commit()}
