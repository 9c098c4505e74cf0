"""Leading tokens that every query sees exactly, beside the slots of the rest.

Trained encoders send much of their attention to the first token. Averaged into a slot with its neighbours it is lost,
and the conversion with it (docs/measurements.md); so the first s tokens may keep a key and a value of their own.

Axes: B batch, n tokens, S slots, s sinks, h heads, d head dimension.
"""

import torch
from torch import Tensor

from longform.functional.slots import Slots


def rest_mask(mask: Tensor | None, *, batch: int, length: int, sinks: int, device: torch.device) -> Tensor:
    """``mask`` bool (B, n), or None for all, without its first ``sinks`` positions."""
    rest = (torch.arange(length, device=device) >= sinks).expand(batch, -1)
    return rest if mask is None else rest & mask


def sink_counts(mask: Tensor | None, *, batch: int, length: int, sinks: int, device: torch.device) -> Tensor:
    """1 for each of the first ``sinks`` positions that holds text, else 0: float32 (B, s)."""
    if torch.compiler.is_compiling():
        inside = torch.arange(sinks, device=device) < length
        return (inside if mask is None else first_tokens(mask, sinks) & inside).float().expand(batch, -1)
    if mask is None:
        return torch.ones(batch, min(sinks, length), device=device)
    return mask[:, :sinks].float()


def first_tokens(x: Tensor, sinks: int) -> Tensor:
    """The first ``sinks`` positions of x (B, n, ...), or all n where there are fewer.

    A compiled graph always has ``sinks`` of them, repeating the last: a slice would tie it to lengths. sink_counts is
    0 for the repeated ones.
    """
    if not torch.compiler.is_compiling():
        return x[:, :sinks]
    return x.index_select(1, torch.arange(sinks, device=x.device).clamp(max=x.shape[1] - 1))


def join_slots(counts: Tensor, slots: Slots) -> Slots:
    """Slots of one token each in front: ``counts`` (B, s) of sink_counts."""
    return Slots(torch.cat([counts, slots.count], dim=1), slots.size, slots.uniform)
