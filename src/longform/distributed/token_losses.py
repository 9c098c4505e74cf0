"""Losses of tokens for a model that may share texts out: which tokens are here, and sums over all of them.

As the model's last pass had them; of one that shares nothing out, or read the texts as a whole, all tokens are here.

Axes: B batch, n tokens of the whole texts, m tokens of the part.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from longform.distributed.collectives import summed
from longform.distributed.gathering import SEQUENCE_GROUP
from longform.distributed.parts import SequenceGroup
from longform.functional.masks import moved


class OwnPlaces(NamedTuple):
    """Tokens of some that are here: ``which`` of them, long, and their ``places`` among the flattened (B * m)."""

    which: Tensor
    places: Tensor


def _sharing(model: nn.Module) -> SequenceGroup | None:
    found = vars(model).get(SEQUENCE_GROUP)
    return None if found is None or found.part is None else found


def own_tokens(model: nn.Module, x: Tensor) -> Tensor:
    """Part of x (B, n, ...) that belongs to the tokens that are here: (B, m, ...)."""
    sequence = _sharing(model)
    if sequence is None or sequence.part is None:
        return x
    part = sequence.part
    return part.own(x if part.order is None else moved(x, part.order.there))


def own_places(model: nn.Module, places: Tensor) -> OwnPlaces:
    """Places here of the tokens at ``places``, long, among the flattened (B * n)."""
    sequence = _sharing(model)
    if sequence is None or sequence.part is None:
        return OwnPlaces(torch.arange(len(places), device=places.device), places)
    part = sequence.part
    row, column = places // part.length, places % part.length
    if part.order is not None:
        column = part.order.back[row, column]
    which = ((column >= part.start) & (column < part.stop)).nonzero()[:, 0]
    return OwnPlaces(which, row[which] * (part.stop - part.start) + column[which] - part.start)


def over_parts(model: nn.Module, x: Tensor) -> Tensor:
    """The sum over all parts of x, of any shape, which is of the tokens that are here. Gradients pass."""
    sequence = _sharing(model)
    return x if sequence is None else summed([x], sequence.group)[0]
