"""Failures of random projections, counted, beside the theorems' bound on how frequent they are.

A trial is one R (k, n), independent N(0, 1/k), tried on every map of a sample. Every k serves all ε.
Axes: T texts, h heads, n tokens, r some rows, d head dimension, k slots.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor
from torch.linalg import vector_norm

from longform_lab.bounds.attention_samples import AttentionSample
from longform_lab.bounds.random_projection import gaussian_projection, shortened_weights, theorem_2_matrices
from longform_lab.bounds.theorems import failure_bound

ROWS = 32  # of a map, on which Theorem 2's E and F are tried
TINY = 1e-30  # a norm that is not divided by

# What fails, and of how many pairs (a row of P, a column of V) the union is: a number of n and d, or no bound at all.
EVENTS: dict[str, Callable[[int, int], int] | None] = {
    "row": lambda n, d: 1,  # |p RᵀR w - p w| > ε ‖p‖ ‖w‖, one row p of P and one column w of V
    "map": lambda n, d: n,  # the same for any of the n rows (Theorem 1)
    "all": lambda n, d: n * d,  # the same for any row and any column (the union of Theorem 2)
    "vector": lambda n, d: d,  # ‖p RᵀR V - p V‖ > ε ‖p‖ ‖V‖, one row, the columns together (Theorem 2 before E)
    "construction": lambda n, d: d,  # ‖softmax(a Eᵀ) F V - p V‖ > ε ‖p‖ ‖V‖, E = δR and F = exp(-δ) R (Theorem 2)
    "literal": None,  # ‖P RᵀR w - P w‖ > ε ‖P w‖, as Theorem 1 is printed
}


@dataclass(frozen=True)
class Cell:
    """One event at one source of maps, n, d, k and ε.

    ``failure``: its share over ``trials`` projections and all maps of the sample; ``bound``: the theorem's, None where
    there is none.
    """

    source: str
    event: str
    length: int
    head_size: int
    k: int
    epsilon: float
    trials: int
    failure: float
    bound: float | None

    @property
    def says_something(self) -> bool:
        """Whether there is a bound below 1."""
        return self.bound is not None and self.bound < 1

    @property
    def broken(self) -> bool:
        """Whether failures are more frequent than a bound below 1."""
        return self.says_something and self.failure > (self.bound or 0.0)


def failure_cells(
    sample: AttentionSample,
    *,
    slots: Sequence[int],
    epsilons: Sequence[float],
    trials: int,
    generator: torch.Generator,
    advance: Callable[[], object] = lambda: None,
) -> list[Cell]:
    """Every event at every k of ``slots`` and every ε; ``advance`` is called after each k."""
    exact = _Exact(sample)
    length, head_size = sample.values.shape[2:]
    cells = []
    for k in slots:
        rates: dict[tuple[str, float], list[float]] = {(event, eps): [] for event in EVENTS for eps in epsilons}
        for _ in range(trials):
            errors = exact.errors(gaussian_projection(k, length, generator=generator, device=sample.values.device))
            for event, epsilon in rates:
                rates[event, epsilon].append(float((errors[event] > epsilon).double().mean()))
        for (event, epsilon), shares in rates.items():
            pairs = EVENTS[event]
            bound = None if pairs is None else failure_bound(k, epsilon, events=pairs(length, head_size))
            cells.append(Cell(sample.name, event, length, head_size, k, epsilon, trials, mean(shares), bound))
        advance()
    return cells


class _Exact:
    """The products without projection, and what their errors are measured by."""

    def __init__(self, sample: AttentionSample) -> None:
        self.maps, self.values = sample.logits.softmax(-1), sample.values
        self.output = self.maps @ self.values
        self.row_norms = vector_norm(self.maps, dim=-1, keepdim=True)  # ‖p‖ (T, h, n, 1)
        self.column_norms = vector_norm(self.values, dim=-2, keepdim=True)  # ‖w‖ (T, h, 1, d)
        self.value_norms = vector_norm(self.values, dim=(-2, -1))[..., None]  # ‖V‖ (T, h, 1)
        length = self.maps.shape[2]
        count = min(ROWS, length)
        self.rows = torch.arange(count) * length // count
        self.logits = sample.logits[:, :, self.rows]

    def errors(self, projection: Tensor) -> dict[str, Tensor]:
        """Each event's errors in units of what ε is multiplied with, for R (k, n)."""
        short = projection @ self.values  # R V
        off = self.maps @ (projection.T @ short) - self.output
        pairs = off.abs() / (self.row_norms * self.column_norms).clamp(min=TINY)  # (T, h, n, d)
        row_scale = (self.row_norms[..., 0] * self.value_norms).clamp(min=TINY)  # ‖p‖ ‖V‖ (T, h, n)
        key_matrix, value_matrix = theorem_2_matrices(projection)
        constructed = shortened_weights(self.logits, key_matrix) @ (value_matrix @ self.values)
        return {
            "row": pairs,
            "map": pairs.amax(2),
            "all": pairs.amax((2, 3)),
            "vector": vector_norm(off, dim=-1) / row_scale,
            "construction": vector_norm(constructed - self.output[:, :, self.rows], dim=-1) / row_scale[..., self.rows],
            "literal": vector_norm(off, dim=2) / vector_norm(self.output, dim=2).clamp(min=TINY),
        }
