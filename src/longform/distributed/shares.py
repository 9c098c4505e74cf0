"""The share of a part of a text in the slots of the whole: the shares of all parts add up to it.

A dense E is a sum over tokens, so a part has its columns of E. A slot of a mean, maximum or convolution belongs to the
part that holds its tokens; the other parts have zeros there. So has a sink.

Axes: B batch, n tokens of the whole texts, m tokens of a part, S slots, s sinks, h heads, d head dimension.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.distributed.parts import Part
from longform.functional.dense import project_heads
from longform.functional.slots import Runs, Slots, segment_sum
from longform.layers.sequence_projection import (
    DenseProjection,
    RunProjection,
    SequenceProjection,
    usable_slots,
    with_sinks,
)


def share_of_heads(
    projection: SequenceProjection, key: Tensor, value: Tensor, hidden: Tensor, part: Part, sinks: int
) -> Slots:
    """The share of keys and values (B, m, h, d) of the part's tokens, of ``hidden`` states (B, m, D), padding blanked.

    What it says of the slots (``usable``, ``runs``) is true of the whole text.
    """
    if isinstance(projection, DenseProjection):
        return _dense_share(projection, key, value, part)
    assert isinstance(projection, RunProjection)
    first, mask, whole, own = _runs(projection, key, part, sinks)
    own_mask = None if mask is None else part.own(mask)
    pooled = projection.pool(key, value, own, own_mask, _own_sinks(part, sinks), hidden)
    sides = (_placed(x, first, whole, own) for x in pooled)
    slots = Slots(*sides, usable_slots(whole, mask), whole)
    return _with_sinks(slots, key[:, :sinks], value[:, :sinks], part, sinks)


def _dense_share(projection: DenseProjection, key: Tensor, value: Tensor, part: Part) -> Slots:
    rows, usable = projection.rows(part.mask, part.length)
    own = [each._replace(matrix=each.matrix[..., part.start : part.stop]) for each in rows]
    return Slots(project_heads(key, own[0]), project_heads(value, own[-1]), usable, None)


def _runs(projection: RunProjection, x: Tensor, part: Part, sinks: int) -> tuple[Tensor, Tensor | None, Runs, Runs]:
    """The first slot of the part, long (B,); the mask (B, n) of the texts; the runs of the texts; those of the part.

    x (B, m, ...): of the part's tokens.
    """
    batch, tokens = x.shape[:2]
    mask, whole = projection.runs_of(part.mask, sinks, batch=batch, length=part.length, device=x.device)
    valid = torch.ones(batch, tokens, device=x.device) if mask is None else part.own(mask).float()
    count = segment_sum(
        valid[..., None], whole.size, whole.uniform, limit=projection.slots, sinks=_own_sinks(part, sinks)
    )[..., 0]
    return part.start // whole.size, mask, whole, whole._replace(count=count)


def _own_sinks(part: Part, sinks: int) -> int:
    """Tokens of the part that are sinks."""
    return max(0, min(sinks, part.stop) - part.start)


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


def _with_sinks(slots: Slots, key: Tensor, value: Tensor, part: Part, sinks: int) -> Slots:
    """Keys and values (B, ., h, d) of the part's first tokens in front of its share, as far as they are sinks."""
    if not sinks:
        return slots
    total, own = min(sinks, part.length), _own_sinks(part, sinks)
    before = min(part.start, total)
    sides = (pad(x[:, :own], (0, 0, 0, 0, before, total - before - own)) for x in (key, value))
    return with_sinks(slots, *sides, part.mask, part.length)
