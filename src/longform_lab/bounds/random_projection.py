"""Random matrices of the paper's proofs, and the n x n map that any E and F make of attention.

Axes: B any leading axes, n tokens, r rows of a map (queries), k slots, d head dimension.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import softmax


def gaussian_projection(slots: int, length: int, *, generator: torch.Generator, device: torch.device) -> Tensor:
    """R (k, n), float32, independent N(0, 1/k): E[RᵀR] = I. ``slots`` k may be above ``length`` n.

    ``generator``: of the CPU, so that a seed means the same on every device.
    """
    return (torch.randn(slots, length, generator=generator) / math.sqrt(slots)).to(device)


def theorem_2_matrices(projection: Tensor) -> tuple[Tensor, Tensor]:
    """E = δ R and F = exp(-δ) R for ``projection`` R (k, n), with δ = 1/n (proof of Theorem 2)."""
    delta = 1.0 / projection.shape[1]
    return delta * projection, math.exp(-delta) * projection


def shortened_weights(logits: Tensor, key_matrix: Tensor) -> Tensor:
    """softmax(A Eᵀ): logits A = Q Kᵀ / sqrt(d) (B, r, n) and E (k, n) or (B, k, n) -> (B, r, k).

    The same as softmax(Q (E K)ᵀ / sqrt(d)) of equation 7, whose weights times F are the map that it implies.
    """
    return softmax(logits @ key_matrix.transpose(-1, -2), dim=-1)
