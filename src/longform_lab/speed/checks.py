"""Checks of outputs and gradients before anything is timed.

Errors are relative: ||difference|| / ||expected||, whole tensors.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from longform.errors import LongformError
from longform.layers.streaming import LONG
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.precision import precision
from longform_lab.speed.shapes import Cell, Shape

CHECKED_TOKENS = 512  # of a longer text
# Tokens; families that take nothing but whole texts are checked on longer ones by a short twin.
LONGEST_WHOLE = {"peer": 4_096, "order": CHECKED_TOKENS}
VERIFIED_TOKENS, VERIFIED_SLOTS = 64, 16
LARGEST_ERROR = {"float32": 1e-4, "bfloat16": 6e-2}  # after all layers of random weights
LARGEST_GRADIENT_ERROR = {"float32": 1e-4, "bfloat16": 1e-1}  # of all weights' gradients together
PEER_ERROR = 1e-4  # float32 against float32


class WrongOutput(LongformError):
    """A competitor whose output is not what it should be; it is not timed."""


def require_equal(actual: Tensor, expected: Tensor, largest: float, what: str) -> float:
    """The relative error of two tensors, any dtypes.

    Raises WrongOutput where it is above ``largest`` or not a number, and where shapes differ.
    """
    if actual.shape != expected.shape:
        raise WrongOutput(f"its output has shape {tuple(actual.shape)} instead of {tuple(expected.shape)}")
    expected = expected.double()
    error = float((actual.double() - expected).norm() / expected.norm())
    if not error <= largest:
        raise WrongOutput(f"its output is wrong: relative error {error:.2e} from {what}, allowed {largest:.1e}")
    return error


def check_output(
    competitor: Competitor, model: nn.Module, forward: Callable[[Tensor], Tensor], cell: Cell, hidden: Tensor
) -> float | None:
    """Compare ``forward``, the model as it will be timed, with what ``model``'s float32 weights should give.

    Hidden states (B, n, D), float32. The first 512 tokens of one text against the plain way in float64; a compiled
    model, which is made for one length, on whole texts, against float32 above that. Longform takes texts of 4,096
    tokens and more through a layer in parts, and so that much is compared with float32 in one piece. An architecture
    without a plainer way must give finite numbers. Returns the relative error, or None. Raises WrongOutput.
    """
    if competitor.expected is None:
        out = forward(hidden)
        if out.shape != hidden.shape or not bool(torch.isfinite(out).all()):
            raise WrongOutput(f"its output is not finite numbers of shape {tuple(hidden.shape)}")
        return None
    given, largest = given_of(competitor, cell, hidden), LARGEST_ERROR[cell.dtype]
    if competitor.family == "ours" and given.shape[1] < LONG <= cell.length:
        long = hidden[:1, :LONG]
        with torch.enable_grad():  # so a layer takes the text in one piece; frozen weights keep nothing
            pieceless = copy.deepcopy(model).requires_grad_(False)(long)
        require_equal(forward(long), pieceless, largest, "float32 in one piece")
    with torch.no_grad():
        expected, said = expected_of(competitor, copy.deepcopy(model), given)
    return require_equal(forward(given), expected, largest, said)


def given_of(competitor: Competitor, cell: Cell, hidden: Tensor) -> Tensor:
    """As much of ``hidden`` (B, n, D) as is compared with float64, or with float32 where it has to be whole."""
    whole = cell.mode == "compiled" or competitor.family == "peer"
    return hidden if whole else hidden[:1, :CHECKED_TOKENS]


def expected_of(competitor: Competitor, model: nn.Module, given: Tensor) -> tuple[Tensor, str]:
    """The right output for ``given`` (B, n, D), and what it is called. Changes ``model``, a float32 copy."""
    assert competitor.expected is not None
    if given.shape[1] > CHECKED_TOKENS:
        return model(given), "float32"
    return competitor.expected(model.double(), given.double()), "float64"


def checkable(competitor: Competitor, cell: Cell) -> Cell:
    """The cell in which a competitor is checked: its own, or a shorter one where it takes nothing but whole texts."""
    longest = LONGEST_WHOLE.get(competitor.family, cell.length)
    return cell if cell.length <= longest else replace(cell, length=CHECKED_TOKENS, batch=1)


def verify(competitor: Competitor, shape: Shape) -> None:
    """Compare with an independent implementation, weights copied, on a text of 64 tokens. Raises WrongOutput."""
    if competitor.verify is not None:
        slots = min(VERIFIED_SLOTS, shape.slots)
        competitor.verify(Shape(shape.size, min(VERIFIED_TOKENS, shape.length), slots))


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
    """Gradients of each of ``model``'s weights, for out (B, n, D) times ``direction``; none are left in it."""
    (out * direction.to(out)).sum().backward()
    found = [weight.grad for weight in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


def _joined(gradients: Iterable[Tensor | None]) -> Tensor:
    return torch.cat([x.detach().double().flatten().cpu() for x in gradients if x is not None])
