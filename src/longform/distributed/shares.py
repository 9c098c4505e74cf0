"""The share of a part of a text in the slots of the whole: the shares of all parts add up to it.

A dense E is a sum over tokens, so a part has its columns of E. A slot of a mean, maximum or convolution belongs to the
part that holds its tokens; the other parts have zeros there. So has an exact token.

Axes: B batch, n tokens of the whole texts, m tokens of a part, S slots, h heads, d head dimension.
"""

import torch
from torch import Tensor

from longform.distributed.parts import Part
from longform.functional.dense import project_heads
from longform.functional.slots import Exact, Runs, Slots, picked, segment_sum
from longform.layers.sequence_projection import (
    DenseProjection,
    RunProjection,
    SequenceProjection,
    with_exact,
)


def share_of_heads(
    projection: SequenceProjection, key: Tensor, value: Tensor, hidden: Tensor, part: Part, exact: Exact | None
) -> Slots:
    """The share of keys and values (B, m, h, d) of the part's tokens, of ``hidden`` states (B, m, D), padding blanked.

    What it says of the slots (``usable``, ``runs``) is true of the whole text, as ``exact`` is.
    """
    if isinstance(projection, DenseProjection):
        return _dense_share(projection, key, value, part)
    assert isinstance(projection, RunProjection)
    counted, whole, usable = projection.runs_of(part.mask, exact, key, length=part.length)
    valid = torch.ones(key.shape[:2], device=key.device) if counted is None else part.own(counted).float()
    count = segment_sum(valid[..., None], whole.size, whole.uniform, limit=projection.slots)[..., 0]
    own, first = whole._replace(count=count), part.start // whole.size  # the part's runs; the place of the first
    pooled = projection.pool(key, value, own, None if counted is None else part.own(counted), hidden)
    sides = (_placed(x, first, whole, own) for x in pooled)
    slots = Slots(*sides, usable, whole)
    return slots if exact is None else with_exact(slots, *(_of_part(x, exact, part) for x in (key, value)), exact)


def _dense_share(projection: DenseProjection, key: Tensor, value: Tensor, part: Part) -> Slots:
    rows, usable = projection.rows(part.mask, part.length)
    own = [each._replace(matrix=each.matrix[..., part.start : part.stop]) for each in rows]
    return Slots(project_heads(key, own[0]), project_heads(value, own[-1]), usable, None)


def _of_part(x: Tensor, exact: Exact, part: Part) -> Tensor:
    """x (B, m, h, d) of the part's tokens at ``exact`` positions of the text, zeros at those of other parts."""
    inside = (exact.positions >= part.start) & (exact.positions < part.stop)
    return torch.where(inside[..., None, None], picked(x, (exact.positions - part.start).clamp(min=0)), 0.0)


def _placed(x: Tensor, first: Tensor, whole: Runs, own: Runs) -> Tensor:
    """Slots x (B, ., h, d) of a part in their places among those of the whole, zeros elsewhere: (B, h, S, d).

    ``first``: the place of the first one, long (B,). ``own``: the runs of the part, of which
    empty ones are left out.
    """
    x = torch.where(own.count[..., None, None] > 0, x, 0.0)
    total = whole.count.shape[1]
    place = (first[:, None] + torch.arange(x.shape[1], device=x.device)).clamp(
        max=total - 1
    )  # what is past it is empty
    zeros = x.new_zeros(x.shape[0], total, *x.shape[2:])
    return zeros.scatter_add(1, place[..., None, None].expand(x.shape), x).transpose(1, 2)
