"""One call of attention over keys that every query sees.

Axes: B batch, n queries, S keys, h heads, d head dimension, b blocks of queries, g = 1 or h.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longform.functional.conditions import TILE_MULTIPLE, Call, ask_gradient, lazy_property
from longform.functional.dispatch import Condition
from longform.functional.positions.distances import between


@dataclass(eq=False)
class AttentionCall(Call):
    """``query`` (B, h, n, d); ``key``, ``value`` (B, h, S, d).

    ``usable``: bool (B or 1, g, 1, S), False hides a key, or None. ``bias`` (1, g, b, S) or None: added to the logits,
    a row for each ``block`` queries. ``distance_bias`` (h, 2 r + 1) or None: see functional.positions.distances;
    query and key i stand at the same place.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    usable: Tensor | None = None
    bias: Tensor | None = None
    block: int = 0
    dropout: float = 0.0
    distance_bias: Tensor | None = None

    def __post_init__(self) -> None:
        self.tensors = (self.query, self.key, self.value)
        of_distances = None if self.distance_bias is None else self.distance_bias.requires_grad
        self.options = self.bias is None, of_distances, self.dropout > 0.0

    @lazy_property
    def wants_gradient(self) -> bool:
        """Whether autograd will ask for a gradient of any of the tensors, or of the bias by distance."""
        return ask_gradient((*self.tensors, self.distance_bias))

    @property
    def mask(self) -> Tensor | None:
        """``usable``, or what is added to the logits of each query: (B or 1, g, 1 or n, S) or None."""
        if self.distance_bias is not None:
            return self._distances()
        if self.bias is None:
            return self.usable
        queries = torch.arange(self.query.shape[2], device=self.bias.device)
        return self.bias[:, :, queries // self.block].to(self.query.dtype)

    def _distances(self) -> Tensor:
        """The bias by distance, -inf for keys that are not usable: (B or 1, h, n, S)."""
        assert self.distance_bias is not None
        queries, keys = (torch.arange(x.shape[2], device=x.device) for x in (self.query, self.key))
        found = between(self.distance_bias.to(self.query.dtype), queries, keys)[None]
        return found if self.usable is None else found.masked_fill(~self.usable, -torch.inf)

    def float_bias(self) -> Tensor | None:
        """``usable`` or ``bias`` as float32 (B, h, 1 or b, S), as compiled kernels read it; None for nothing."""
        rows = self.bias
        if self.usable is not None:
            rows = torch.zeros(self.usable.shape, dtype=torch.float32).masked_fill_(~self.usable, -torch.inf)
        return None if rows is None else rows.float().contiguous().expand(*self.query.shape[:2], -1, -1)


NO_BIAS = Condition("no bias on the logits", lambda call: call.bias is None)
WHOLE_TILES = Condition(
    f"a head dimension that is a multiple of {TILE_MULTIPLE}", lambda call: call.query.shape[-1] % TILE_MULTIPLE == 0
)
