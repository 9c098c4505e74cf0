"""Gradients of gradients with random weights, and how near two lists of gradients must be."""

from collections.abc import Iterable

import torch
from torch import Tensor

from strategies import generator, normal


def assert_near(found: Iterable[Tensor], expected: Iterable[Tensor], dtype: torch.dtype) -> None:
    bound = {torch.float64: 1e-10, torch.float32: 1e-5}.get(dtype, 0.03)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= bound * other.norm() + 1e-12


def gradients_of_gradients(out: Tensor, leaves: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The gradients of a sum of gradients with random weights, after these; ``dtype``: to which both are rounded."""
    source = generator(10)
    d_out = normal(source, *out.shape, dtype=dtype).to(out.dtype).requires_grad_()
    first = torch.autograd.grad(out, leaves, d_out, create_graph=True)
    along = (normal(source, *x.shape, dtype=dtype).to(x.dtype) for x in first)
    total = sum((x * y).sum() for x, y in zip(first, along, strict=True))
    second = torch.autograd.grad(total, (d_out, *leaves), allow_unused=True, materialize_grads=True)
    return [*first, *second]
