"""The n x n map that shortened attention implies, for looking at it: which token draws on which.

context = P (F V) = (P F) V, so a layer with weights P (n x k) acts like full attention with the map P F. Here, and only
here, something with n² elements is made.

Axes: B batch, n tokens, S slots, h heads, g = 1 (heads share F) or h, w window.
"""

import torch
from torch import Tensor

from longform.errors import InputError
from longform.functional.dense import Rows
from longform.functional.slots import Slots


def dense_value_rows(rows: Rows, mask: Tensor | None) -> Tensor:
    """F' as a layer uses it: rows (g, k, n) rescaled, zero on padding; ``mask`` bool (B, n) -> (B or 1, g, k, n)."""
    matrix = rows.matrix[None]
    if rows.scale is not None:
        matrix = matrix * rows.scale[..., None]
    return matrix if mask is None else torch.where(mask[:, None, None], matrix, 0.0)


def mean_value_rows(slots: Slots, mask: Tensor | None, *, length: int, dtype: torch.dtype) -> Tensor:
    """Means as a matrix: 1 / count on the valid tokens of each slot; ``mask`` bool (B, n) -> (B, 1, S, n)."""
    slot_count = slots.count.shape[1]
    positions = torch.arange(length, device=slots.count.device)
    home = (positions // slots.size[:, None]).clamp(max=slot_count - 1)
    inside = home[:, None] == torch.arange(slot_count, device=home.device)[:, None]
    if mask is not None:
        inside = inside & mask[:, None]
    return (inside.to(dtype) / slots.count.clamp(min=1.0).to(dtype)[..., None])[:, None]


def effective_map(weights: Tensor, value_rows: Tensor, *, window: int | None = None) -> Tensor:
    """The map (B, h, n, n) with map @ V = context, for values V (B, h, n, d).

    ``weights``: what attention returns, (B, h, n, S), or with a ``window`` w of tokens (B, h, n, S + 3 w), slots
    first, then the query's block with both neighbours. ``value_rows`` (B or 1, g, S, n): F. Far weight is spread over
    the tokens of its slot, near weight stands at its token. Raises InputError where the widths do not agree.
    """
    slot_count, near = value_rows.shape[-2], 3 * (window or 0)
    if weights.shape[-1] != slot_count + near:
        raise InputError(
            f"attention weights are {weights.shape[-1]} wide, but the value rows give {slot_count} slots and "
            f"window={window} gives {near} near tokens; take both from one layer and one input"
        )
    implied = weights[..., :slot_count] @ value_rows.to(weights.dtype)
    return implied if window is None else implied + near_map(weights[..., slot_count:], window=window)


def near_map(weights: Tensor, *, window: int) -> Tensor:
    """Near weights (B, h, n, 3 w) put into their columns: (B, h, n, n)."""
    length = weights.shape[2]
    own = torch.arange(length, device=weights.device)
    columns = (own // window - 1)[:, None] * window + torch.arange(3 * window, device=weights.device)
    # Positions before the start and past the end have no weight, so where they land does not matter.
    columns = columns.clamp(0, length - 1).expand(weights.shape)
    return weights.new_zeros(*weights.shape[:3], length).scatter_add(3, columns, weights)
