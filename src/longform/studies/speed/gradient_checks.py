"""Gradients are compared before a training step is timed."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from longform.studies.speed.checks import WrongOutput, expected_of, given_of, require_equal
from longform.studies.speed.competitor import Competitor
from longform.studies.speed.precision import precision
from longform.studies.speed.shapes import Cell

LARGEST_GRADIENT_ERROR = {"float32": 1e-4, "bfloat16": 1e-1}  # relative, of all weights' gradients together


def check_gradients(
    competitor: Competitor, model: nn.Module, prepared: nn.Module, cell: Cell, hidden: Tensor
) -> float | None:
    """Compare the gradients of ``prepared``'s weights, as it will be trained, with those of ``check_output``'s way.

    Of a random linear function of the output: its square, which is timed, hardly changes after a normalisation.
    Returns the relative error, or None where there is no plainer way. Raises WrongOutput.
    """
    if competitor.expected is None:
        return None
    given = given_of(competitor, cell, hidden)
    direction = torch.randn(given.shape, generator=torch.Generator().manual_seed(0))
    with precision(cell):
        out = prepared(given.to(cell.device))
    actual = _gradients(out, direction, prepared)
    plain = copy.deepcopy(model)
    expected, said = expected_of(competitor, plain, given)
    wanted = _gradients(expected, direction, plain)
    if [x is None for x in actual] != [x is None for x in wanted]:
        raise WrongOutput("its gradients are not of the weights that should have some")
    return require_equal(_joined(actual), _joined(wanted), LARGEST_GRADIENT_ERROR[cell.dtype], f"{said}, of gradients")


def _gradients(out: Tensor, direction: Tensor, model: nn.Module) -> list[Tensor | None]:
    """Of each of ``model``'s weights, for out (B, n, D) times ``direction``; none are left in it."""
    (out * direction.to(out)).sum().backward()
    found = [weight.grad for weight in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


def _joined(gradients: Iterable[Tensor | None]) -> Tensor:
    return torch.cat([x.detach().double().flatten().cpu() for x in gradients if x is not None])
