"""Leading tokens that every query sees exactly, beside the slots of the rest.

Trained encoders send much of their attention to the first token. Averaged into a slot with its neighbours it is lost,
and the conversion with it (docs/measurements.md); so the first s tokens may keep a key and a value of their own.

Axes: B batch, n tokens, S slots, s sinks, h heads, d head dimension.
"""

import torch
from torch import Tensor

from longform.functional.projection import Slots


def rest_mask(mask: Tensor | None, *, batch: int, length: int, sinks: int, device: torch.device) -> Tensor:
    """``mask`` bool (B, n), or None for all, without its first ``sinks`` positions."""
    rest = (torch.arange(length, device=device) >= sinks).expand(batch, -1)
    return rest if mask is None else rest & mask


def sink_counts(mask: Tensor | None, *, batch: int, length: int, sinks: int, device: torch.device) -> Tensor:
    """1 for each of the first ``sinks`` positions that holds text, else 0: float32 (B, s)."""
    if mask is None:
        return torch.ones(batch, min(sinks, length), device=device)
    return mask[:, :sinks].float()


def join_slots(counts: Tensor, slots: Slots) -> Slots:
    """Slots of one token each in front: ``counts`` (B, s) of sink_counts."""
    return Slots(torch.cat([counts, slots.count], dim=1), slots.size, slots.uniform)
