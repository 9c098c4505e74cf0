"""Errors of attention of rank k: by the best map, random projections, means, convolutions, and fitted E and F.

Two errors, both relative and Frobenius: of the map, ‖P~ - P‖ / ‖P‖, whose smallest possible value at rank k is the
SVD's (Eckart, Young, Mirsky); and of the output, ‖P~ V - P V‖ / ‖P V‖, for which the SVD is not optimal.
Axes: T texts, h heads, n tokens, d head dimension, k slots.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform_lab.bounds.attention_samples import AttentionSample
from longform_lab.bounds.fitted_projections import (
    Projections,
    fitted_convolution,
    fitted_dense,
    map_error,
    mean_projections,
)
from longform_lab.bounds.random_projection import gaussian_projection, shortened_weights, theorem_2_matrices
from longform_lab.bounds.settings import BoundSettings

BEST = "SVD"
OBJECTIVES = ("map", "output")
Decomposed = tuple[Tensor, Tensor, Tensor]


class Errors(NamedTuple):
    """Relative errors of each map and of each output: (T, h)."""

    of_map: Tensor
    of_output: Tensor


@dataclass(frozen=True)
class ErrorRow:
    """One method at one k in one layer (0 the first), on texts that nothing was fitted to.

    ``fitted_to``: "map" or "output", None where nothing is fitted. The errors are means over texts and heads;
    ``seen_*`` are those on the texts that it was fitted to; ``above_best``: the smallest difference of a map's error
    to that of the SVD of the same map.
    """

    method: str
    fitted_to: str | None
    layer: int
    length: int
    k: int
    map_error: float
    output_error: float
    seen_map_error: float | None
    seen_output_error: float | None
    above_best: float


def decomposed(sample: AttentionSample) -> Decomposed:
    """Singular value decompositions of a sample's maps, made once for every k: left diag(values) right."""
    return torch.linalg.svd(sample.logits.softmax(-1), full_matrices=False)


def svd_errors(sample: AttentionSample, parts: Decomposed, k: int) -> Errors:
    """Errors of the best maps of rank k."""
    left, values, right = parts
    low = (left[..., :k] * values[..., None, :k]) @ right[..., :k, :]
    return _errors(low, sample)


def projection_errors(sample: AttentionSample, projections: Projections) -> Errors:
    """Errors of softmax(A Eᵀ) F."""
    found = [
        _errors(shortened_weights(logits, projections.key) @ projections.value, sample, text)
        for text, logits in enumerate(sample.logits)
    ]
    return _stacked(found)


def random_errors(sample: AttentionSample, k: int, generator: torch.Generator) -> Errors:
    """Errors of Theorem 1's P RᵀR, a new R a text."""
    found = []
    for text, logits in enumerate(sample.logits):
        projection = gaussian_projection(k, logits.shape[-1], generator=generator, device=logits.device)
        found.append(_errors(logits.softmax(-1) @ projection.T @ projection, sample, text))
    return _stacked(found)


def compression_rows(
    fit: AttentionSample, held_out: AttentionSample, parts: Decomposed, k: int, settings: BoundSettings
) -> list[ErrorRow]:
    """Every method at ``k``: fitted on ``fit``, measured on ``held_out``, whose decompositions are ``parts``."""
    best = svd_errors(held_out, parts, k)
    rows = [_row(BEST, None, k, held_out, best, best, None)]
    for method, fitted_to, errors, seen in _others(fit, held_out, k, settings):
        rows.append(_row(method, fitted_to, k, held_out, errors, best, seen))
    return rows


def _others(
    fit: AttentionSample, held_out: AttentionSample, k: int, settings: BoundSettings
) -> Iterator[tuple[str, str | None, Errors, Errors | None]]:
    length, device = held_out.logits.shape[-1], held_out.logits.device
    generator = torch.Generator().manual_seed(settings.seed)
    yield "random, theorem 1", None, random_errors(held_out, k, generator), None
    projection = gaussian_projection(k, length, generator=generator, device=device)
    second = Projections(*theorem_2_matrices(projection))
    yield "random, theorem 2", None, projection_errors(held_out, second), None
    means = Projections(*(matrix.to(device) for matrix in mean_projections(k, length)))
    yield "mean", None, projection_errors(held_out, means), None
    how: Any = {"steps": settings.fit_steps, "learning_rate": settings.learning_rate, "seed": settings.seed}
    for objective in OBJECTIVES:
        for name, fitted in (("convolution, fitted", fitted_convolution), ("E and F, fitted", fitted_dense)):
            found = fitted(fit, k, objective=objective, **how)
            yield name, objective, projection_errors(held_out, found), projection_errors(fit, found)


def _errors(found: Tensor, sample: AttentionSample, text: int | None = None) -> Errors:
    """Errors of maps ``found`` (T, h, n, n), or (h, n, n) of one ``text``."""
    logits, values = (x if text is None else x[text] for x in (sample.logits, sample.values))
    exact = logits.softmax(-1)
    return Errors(map_error(found, exact), map_error(found @ values, exact @ values))


def _stacked(found: list[Errors]) -> Errors:
    return Errors(*(torch.stack(part) for part in zip(*found, strict=True)))


def _row(
    method: str,
    fitted_to: str | None,
    k: int,
    sample: AttentionSample,
    errors: Errors,
    best: Errors,
    seen: Errors | None,
) -> ErrorRow:
    of_map, of_output = errors
    return ErrorRow(
        method=method,
        fitted_to=fitted_to,
        layer=sample.layer or 0,
        length=sample.logits.shape[-1],
        k=k,
        map_error=float(of_map.mean()),
        output_error=float(of_output.mean()),
        seen_map_error=None if seen is None else float(seen.of_map.mean()),
        seen_output_error=None if seen is None else float(seen.of_output.mean()),
        above_best=float((of_map - best.of_map).min()),
    )
