"""Every allowed combination of projection, sharing and window, as layers with random weights and as their twins."""

import math
from dataclasses import dataclass

import torch
from reference.attention import ReferenceLatents, ReferenceLinear, ReferenceMemory, reference_layer
from torch import Tensor

from longform.choices import POOLED, PROJECTIONS
from longform.layers.attention import LinformerAttention
from longform.layers.options import Projection
from longform.layers.self_attention import Shared
from longform.layers.sequence_projection import (
    ConvolutionProjection,
    DenseProjection,
    LatentProjection,
    SequenceProjection,
    WeightedMeanProjection,
    make_projection,
)
from strategies import away_from_zero, generator, normal

DIM = 3


@dataclass(frozen=True)
class Kind:
    """One allowed combination."""

    projection: str
    sharing: str
    window: int | None = None
    budget: float | None = None
    slots: tuple[int, ...] = (4, 4)
    longest: int = 8
    sinks: int = 0
    hidden: int | None = None  # None: what the heads have together
    taps: int = 0  # of a short convolution in front
    selected: int = 0
    marked: bool = False  # every third token by a global_attention_mask

    @property
    def heads(self) -> int:
        return len(self.slots)

    @property
    def width(self) -> int:
        """Hidden size D."""
        return self.hidden or self.heads * DIM

    def __str__(self) -> str:
        return "-".join(
            str(x)
            for x in (
                self.projection,
                self.sharing,
                self.window,
                *self.slots,
                f"sinks{self.sinks}",
                self.hidden,
                self.taps and f"taps{self.taps}",
                self.selected and f"selected{self.selected}",
                self.marked and "marked",
            )
            if x
        )


SHARINGS = ("none", "headwise", "key_value", "layerwise")
PAPER = [
    *(Kind(p, s) for p in ("linear", "random", "convolution") for s in SHARINGS),
    *(Kind(p, s) for p in ("weighted_mean", "mean", "max", "latent") for s in ("none", "headwise")),
]
WINDOWED = [
    *(Kind("convolution", s, 2, 3.0) for s in SHARINGS),
    *(Kind(p, s, 2, 3.0) for p in ("weighted_mean", "mean", "max") for s in ("none", "headwise")),
]
SPECIAL = [  # k of each head its own; a window that reaches across everything
    *(Kind(p, "none", slots=(5, 2, 5)) for p in PROJECTIONS),
    *(Kind(p, "none", 4, None, (6, 3, 6), 12) for p in POOLED),
    Kind("mean", "headwise", 6, longest=12),
    *(Kind(p, "headwise", window, 3.0 if window else None, sinks=3) for p in POOLED for window in (None, 2)),
    Kind("latent", "headwise", sinks=2),
]
NARROW_AND_WIDE = [  # heads that together have fewer features than the hidden states, or more
    *(Kind(p, s, hidden=width) for width in (7, 4) for p in ("linear", "convolution") for s in ("none", "layerwise")),
    *(Kind("mean", "headwise", window, 3.0 if window else None, sinks=1, hidden=7) for window in (None, 2)),
    Kind("mean", "none", 4, None, (6, 3, 6), 12, hidden=5),
    Kind("weighted_mean", "headwise", 2, 3.0, sinks=1, hidden=7),
    Kind("weighted_mean", "none", 4, None, (6, 3, 6), 12, hidden=5),
    Kind("latent", "none", None, None, (5, 2, 5), hidden=7),
]
CONVOLVED = [
    *(Kind(p, "headwise", taps=taps) for p, taps in (("linear", 5), ("weighted_mean", 3), ("mean", 7), ("latent", 3))),
    *(Kind("weighted_mean", "headwise", window, 3.0, sinks=1, taps=5) for window in (None, 2)),
]
SELECTED = [  # blocks of 2 of 12 tokens, far from each 3 to 4 slots of 2 tokens, or heads with 2 and with 3
    *(Kind(p, "headwise", 2, 3.0, (6, 6), 12, sinks, selected=m) for p in POOLED for sinks, m in ((0, 1), (3, 2))),
    Kind("convolution", "layerwise", 2, 3.0, (6, 6), 12, selected=2),
    Kind("weighted_mean", "headwise", 2, None, (6, 6), 12, 1, hidden=7, taps=3, selected=1),
    *(Kind(p, "none", 3, 5.0, (5, 15, 5), 15, selected=2) for p in ("mean", "weighted_mean")),
]
MARKED = [
    *(Kind(p, "headwise", marked=True) for p in PROJECTIONS),
    *(Kind(p, "headwise", 2, 3.0, sinks=sinks, marked=True) for p in POOLED for sinks in (0, 1)),
    Kind("linear", "layerwise", hidden=7, marked=True),
    Kind("convolution", "layerwise", 2, 3.0, taps=3, marked=True),
    *(Kind("mean", "none", window, None, (6, 3, 6), 12, marked=True) for window in (None, 4)),
    *(Kind(p, "headwise", 2, 3.0, (6, 6), 12, 1, selected=2, marked=True) for p in ("mean", "weighted_mean")),
]
KINDS = [*PAPER, *WINDOWED, *SPECIAL, *NARROW_AND_WIDE, *CONVOLVED, *SELECTED, *MARKED]


class Layer:
    """A layer with random weights, and the same weights as the twin takes them; ``taps`` scales E, F and kernels."""

    def __init__(self, kind: Kind, seed: int, dtype: torch.dtype = torch.float64, taps: float = 1.0) -> None:
        self.kind, source = kind, generator(seed)
        chosen = Projection(kind.projection, kind.sharing, "normal", sink_tokens=kind.sinks, memory_budget=kind.budget)
        options = {"max_length": kind.longest, "projection": chosen, "attention_window": kind.window}
        options |= {"head_dim": DIM if kind.hidden else None, "short_convolution": kind.taps}
        options["selected_slots"] = kind.selected
        self.layer = LinformerAttention(kind.width, kind.heads, projected_length=list(kind.slots), **options).to(dtype)
        self.shared = None
        if kind.sharing == "layerwise":
            shape = {"heads": kind.heads, "head_dim": DIM, "max_length": kind.longest, "slots": kind.slots[0]}
            self.shared = make_projection(chosen, hidden_size=kind.width, **shape).to(dtype)
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.copy_(normal(source, *parameter.shape))
            for projection in self.projections:
                for matrix in self.matrices(projection):
                    matrix.copy_(away_from_zero(source, *matrix.shape) * taps / math.sqrt(matrix.shape[-1]))

    @property
    def projections(self) -> list[SequenceProjection]:
        return list(self.layer.groups) if self.shared is None else [self.shared]

    @staticmethod
    def matrices(projection: SequenceProjection) -> list[Tensor]:
        return projection.tensors() if isinstance(projection, DenseProjection | ConvolutionProjection) else []

    @property
    def leaves(self) -> list[Tensor]:
        extra = [] if self.shared is None else list(self.shared.parameters())
        return [*self.layer.parameters(), *extra]

    def __call__(self, hidden: Tensor, mask: Tensor | None, **options: bool) -> Tensor:
        return self.layer(hidden, mask, shared=self.given, global_attention_mask=self.marks(hidden), **options)

    def marks(self, hidden: Tensor) -> Tensor | None:
        """Every third token (B, n), the second first."""
        places = torch.arange(hidden.shape[1]) % 3 == 1
        return places.expand(hidden.shape[:2]) if self.kind.marked else None

    @property
    def given(self) -> Shared:
        return Shared(projection=self.shared)

    def memories(self) -> list[ReferenceMemory]:
        """E and F of each head: of its own group of heads with the same k, the n-th in it."""
        kind, found = self.kind, []
        name = {"linear": "dense", "random": "dense"}.get(kind.projection, kind.projection)
        groups = list(dict.fromkeys(kind.slots))
        for head, slots in enumerate(kind.slots):
            matrices = [None, None]
            if self.projections and isinstance(self.projections[groups.index(slots)], WeightedMeanProjection):
                scores = self.projections[groups.index(slots)].scores.weight.unflatten(0, (2, -1))
                matrices = list(scores[:, kind.slots[:head].count(slots)])
            if self.projections and isinstance(made := self.projections[groups.index(slots)], LatentProjection):
                nth = kind.slots[:head].count(slots)
                own = ReferenceLatents(*(x[nth].squeeze(0) if x.shape[1] == 1 else x[nth] for x in made.tensors()))
                found.append(ReferenceMemory(name, slots, kind.longest, found=own))
                continue
            if self.projections and self.matrices(self.projections[groups.index(slots)]):
                own = self.matrices(self.projections[groups.index(slots)])
                nth = kind.slots[:head].count(slots) if len(own[0]) > 1 else 0
                matrices = [own[0][nth], own[-1][nth]]
            found.append(ReferenceMemory(name, slots, kind.longest, *matrices))
        return found

    def linears(self) -> dict[str, ReferenceLinear]:
        layer = self.layer
        parts = {"query": layer.query or layer.key, "key": layer.key, "value": layer.value, "output": layer.output}
        return {name: ReferenceLinear(part.weight, part.bias) for name, part in parts.items()}

    def twin(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        options = {"memory_bias": self.layer.memory_bias, "memory_budget": self.kind.budget, "sinks": self.kind.sinks}
        options["marked"] = self.marks(hidden)
        options["short_convolution"] = None if self.layer.convolution is None else self.layer.convolution.weight
        window, options["selected"] = self.kind.window, self.kind.selected
        return reference_layer(hidden, mask, **self.linears(), memories=self.memories(), window=window, **options)
