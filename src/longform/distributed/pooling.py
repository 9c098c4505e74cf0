"""Pooling of a text of which each process has a part: every pooling is a weighted sum over tokens.

Axes: B batch, n tokens of the whole texts, m tokens of a part, D features.
"""

import torch
from torch import Tensor, nn

from longform.distributed.collectives import summed
from longform.distributed.parts import Part, SequenceGroup
from longform.functional.masks import blank_padding, first_token
from longform.functional.pooling import lead_weights, pooled


class ParallelPooling(nn.Module):
    """models.modeling_linformer.Pooling where texts are shared out: each process gets the vector of the whole text."""

    def __init__(self, kind: str, sequence: SequenceGroup) -> None:
        super().__init__()
        self.kind, self.sequence = kind, sequence

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """hidden (B, m, D) of the part -> (B, D), or (B, 2 D) where the kind names two.

        ``mask``: of texts that every process reads as a whole; those of others ``sequence`` knows.
        """
        part = self.sequence.part
        if part is None:
            return pooled(hidden, mask, kind=self.kind)
        return pooled_parts(hidden, part, self.sequence, kind=self.kind)


def pooled_parts(hidden: Tensor, part: Part, sequence: SequenceGroup, *, kind: str) -> Tensor:
    """The pooled vector of whole texts from hidden (B, m, D) of each part: (B, D), or (B, 2 D)."""
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    text = blank_padding(hidden, part.own_mask)
    weights = [_weights(name, part, hidden, wide) for name in kind.split("_")]
    share = torch.cat([(text * part.own(weight)[..., None]).sum(dim=1) for weight in weights], dim=1)
    return summed([share], sequence.group)[0].to(hidden.dtype)


def _weights(kind: str, part: Part, hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight of each token of the whole texts: (B, n)."""
    batch, device, mask = hidden.shape[0], hidden.device, part.mask
    if kind == "lead":
        return lead_weights(mask, batch=batch, length=part.length, device=device, dtype=dtype)
    if mask is None:
        mask = torch.ones(batch, part.length, dtype=torch.bool, device=device)
    if kind == "mean":
        return mask.to(dtype) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    first = torch.arange(part.length, device=device) == first_token(mask)[:, None]
    return (first & mask).to(dtype)
