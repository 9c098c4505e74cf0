"""What layers that serve inference alone refuse, before a product makes something of it.

Axes: D inputs.
"""

import torch
from torch import Tensor

from longform.errors import InputError


def check_inference_input(x: Tensor, *, dtype: torch.dtype, made: str, otherwise: str) -> None:
    """Raise InputError unless ``x``, of shape (..., D), is of ``dtype`` on the CPU.

    Also under autocast, and where a gradient is wanted.

    ``made``: what was done to the layer ("packed"). ``otherwise``: how it comes to be of another dtype or device.
    """
    if torch.is_autocast_enabled("cpu"):
        raise InputError(f"{made} for {dtype}, and called under autocast: {otherwise}")
    if torch.is_grad_enabled() and x.requires_grad:
        raise InputError(f"a {made} layer has no gradient: use torch.no_grad(), or train before it is {made}")
    if x.dtype != dtype or x.device.type != "cpu":
        raise InputError(f"{made} for {dtype} on the CPU, and given {x.dtype} on {x.device.type}: {otherwise}")
