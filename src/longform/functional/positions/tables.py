"""Position tables for another length.

Axes: rows r = offset + positions, D features.
"""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from longform.choices import EXTENSIONS
from longform.errors import ConfigurationError

INITIALISATIONS = ("normal", "sinusoidal", "none")


def tiled_positions(*, known: int, length: int) -> Tensor:
    """Which known position each of ``length`` positions repeats, long (length,).

    The known ones stay as they are; beyond them the inner ones repeat: 1 to known - 2, since the first holds the
    document's first special token, and the last the closing one.
    """
    positions = torch.arange(length)
    first, period = (1, known - 2) if known > 2 else (0, known)
    return torch.where(positions < known, positions, first + (positions - known) % period)


def extend_positions(table: Tensor, *, length: int, offset: int = 0, method: str = "tile") -> Tensor:
    """A position table (r, D), r = offset + known, made (r, D) with r = offset + length, in the same dtype.

    "tile" repeats the known positions and leaves the first ones unchanged; "interpolate" stretches them linearly over
    the new length. A shorter length cuts the table. Raises ConfigurationError on another method.
    """
    if method not in EXTENSIONS:
        raise ConfigurationError(f"positions={method!r} is not known; choose one of {', '.join(map(repr, EXTENSIONS))}")
    head, known = table[:offset], table[offset:]
    if length <= known.shape[0]:
        return table[: offset + length].clone()
    if method == "tile":
        return torch.cat([head, known[tiled_positions(known=known.shape[0], length=length).to(table.device)]])
    wide = interpolate(known.T[None].float(), size=length, mode="linear", align_corners=True)[0].T
    return torch.cat([head, wide.to(table.dtype)])


def sinusoidal_positions(places: Tensor, features: int, *, deviation: float) -> Tensor:
    """Sines (even features) and cosines (odd ones) of ``places`` (..., n), float32 (..., n, features).

    Wavelengths from 2 pi to 10,000 x 2 pi (Vaswani et al., 2017, section 3.5); the root of the mean square of a row is
    ``deviation``.
    """
    feature = torch.arange(features, device=places.device)
    angle = places.float()[..., None] * 10_000.0 ** (-2.0 * (feature // 2).float() / features)
    return deviation * 2**0.5 * torch.where(feature % 2 == 0, angle.sin(), angle.cos())
