"""Rotary positions: queries and keys turned by angles that grow with their positions, so that products of them know
their distance (Su et al., RoFormer, 2021).

A feature of the first half of a head and one of the second are the two coordinates that turn together, as in Hugging
Face. Features beyond the pairs that turn stay as they are.

Axes: B batch, n tokens, h heads, d head dimension, r <= d / 2 pairs of features that turn.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from longform.functional.execution import kept


class Rotation(NamedTuple):
    """Cosine and sine of each token's angles, float (n, r), or (B, n, r) where texts count their positions apart."""

    cos: Tensor
    sin: Tensor

    def of(self, document: int) -> "Rotation":
        """Angles of one document: (n, r)."""
        return Rotation(*(x if x.dim() == 2 else x[document] for x in self))

    def at(self, tokens: slice | Tensor) -> "Rotation":
        """Angles of some tokens."""
        return Rotation(*(x[..., tokens, :] for x in self))


def rotation_at(positions: Tensor, frequencies: tuple[float, ...], scaling: float = 1.0) -> Rotation:
    """The rotation of ``positions`` (n), (1, n) or (B, n): radians a token for each of the r ``frequencies``.

    In float32, as in Hugging Face, whose roundings count. ``scaling``: a factor of both coordinates.
    """
    angles = positions[..., None].float() * _tensor(frequencies, positions.device)
    return Rotation(angles.cos() * scaling, angles.sin() * scaling)


@kept  # a copy to a GPU in each pass would wait for it, and cannot be captured in a CUDA graph
def _tensor(frequencies: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(frequencies, dtype=torch.float32, device=device)


def plain_frequencies(features: int, theta: float = 10_000.0) -> tuple[float, ...]:
    """``theta`` ** (-i / r), radians a token, for the pair i of the r that ``features`` make (Su et al., 2021)."""
    with unset_fake_temporarily():  # which has no values
        exponents = torch.arange(0, features, 2, dtype=torch.float32, device="cpu") / features
        return tuple((1.0 / theta**exponents).tolist())


def rotated(x: Tensor, rotation: Rotation | None) -> Tensor:
    """x (B, n, h, d), each token turned by its angles, in the dtype of x; x itself where there is no rotation."""
    if rotation is None:
        return x
    cos, sin = (each[..., None, :] for each in rotation)
    first, second, rest = x.split([cos.shape[-1], cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]], dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned
