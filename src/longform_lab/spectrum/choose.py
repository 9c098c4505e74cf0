"""Slots k chosen from a measured spectrum: the smallest that keeps a share, or a given total shared out.

Axes: L layers, h heads, N the longest text, g layers or heads that are given a k each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from longform.errors import ConfigurationError
from longform_lab.spectrum.singular_values import smallest_index


def allowed_slots(length: int, *, pooled: bool) -> list[int]:
    """The numbers of slots for ``length`` tokens, ascending: 1 to N, or those that runs of whole tokens give.

    A pooled projection with k slots has runs of C = ceil(N / k) tokens and fills ceil(N / C) of its slots.
    """
    return sorted({-(-length // size) for size in range(1, length + 1)}) if pooled else list(range(1, length + 1))


def smallest_slots(curves: Tensor, share: float, *, pooled: bool) -> Tensor:
    """The smallest k that keeps ``share`` of each of ``curves`` (..., N): long (...)."""
    allowed = torch.tensor(allowed_slots(curves.shape[-1], pooled=pooled))
    return allowed[torch.searchsorted(allowed, smallest_index(curves, share))]


def k_at_total(curves: Tensor, total: int, *, pooled: bool) -> list[int]:
    """A k for each row of ``curves`` (g, N), at most ``total`` together: the least share kept is as large as can be.

    The row that keeps least is given more, again and again, while the total allows. Raises ConfigurationError where
    ``total`` is not enough for one slot each, or more than all tokens.
    """
    rows, length = curves.shape
    if not rows <= total <= rows * length:
        raise ConfigurationError(
            f"total_k={total} cannot be shared out: {rows} layers need at least {rows} (one each) and have no use for "
            f"more than {rows * length:,} ({length} tokens each)"
        )
    steps = allowed_slots(length, pooled=pooled)
    place, spent = [0] * rows, rows
    open_rows = set(range(rows))
    while open_rows:
        row = min(open_rows, key=lambda row: float(curves[row, steps[place[row]] - 1]))
        more = steps[place[row] + 1] - steps[place[row]] if place[row] + 1 < len(steps) else None
        if more is None or spent + more > total:
            open_rows.discard(row)
            continue
        place[row], spent = place[row] + 1, spent + more
    return [steps[at] for at in place]


def head_k_at_total(cumulative: Tensor, total: int, *, pooled: bool) -> list[list[int]]:
    """A k for each head of each layer from ``cumulative`` (L, h, N): h ``total`` slots among all heads of the model.

    As many as ``total`` slots would be if all heads of a layer had the same k; see ``k_at_total``.
    """
    layers, heads, _ = cumulative.shape
    chosen = k_at_total(cumulative.flatten(0, 1), heads * total, pooled=pooled)
    return torch.tensor(chosen).unflatten(0, (layers, heads)).tolist()


def kept_share(curves: Tensor, chosen: Sequence[int]) -> list[float]:
    """Share that each row of ``curves`` (g, N) keeps with its k."""
    return curves[torch.arange(len(chosen)), torch.tensor(chosen) - 1].tolist()
