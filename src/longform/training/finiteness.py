"""Losses, gradients and weights that must be finite: errors that say what made them NaN or infinite."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from longform.errors import CheckpointError, InputError

SHOWN = 3  # names of weights in a message


def check_start(model: nn.Module, what: str) -> None:
    """Raise CheckpointError where weights of ``model``, called ``what``, are NaN or infinite before training."""
    if bad := _not_finite(model):
        raise CheckpointError(f"{what} has weights that are NaN or infinite ({_listed(bad)}): begin from a sound one")


def check_step(model: nn.Module, *, loss: float, gradient: float, step: int, learning_rate: float) -> None:
    """Raise InputError where a step's loss or gradient norm is not finite; the weights are those before its update."""
    if math.isfinite(loss) and math.isfinite(gradient):
        return
    said = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {gradient}"
    if bad := _not_finite(model):
        raise InputError(
            f"{said} at step {step}, because the update before it made weights NaN or infinite ({_listed(bad)}): "
            f"lower learning_rate ({learning_rate})"
        )
    raise InputError(
        f"{said} at step {step}, while every weight is finite: a text or label of this step gives numbers that are too "
        f'large. Look for labels of an extreme size, try dtype="float32", or lower learning_rate ({learning_rate})'
    )


def check_end(model: nn.Module, *, learning_rate: float) -> None:
    """Raise InputError where a trained model has weights that are NaN or infinite."""
    if bad := _not_finite(model):
        raise InputError(
            f"the last update made weights NaN or infinite ({_listed(bad)}): lower learning_rate ({learning_rate})"
        )


def _not_finite(model: nn.Module) -> list[str]:
    return [name for name, tensor in model.named_parameters() if not bool(torch.isfinite(tensor).all())]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
