"""Pressure of a fluid in porous ground (Darcy flow), solved here: -div(a grad p) = 1 in the unit square, p = 0 around.

a is 12 where a smooth random field is above zero and 3 elsewhere, as in Li et al., arXiv 2010.08895, section 5.2: the
field is Gaussian with covariance (-Laplace + 9)^-2. Finite volumes of 64 x 64 cells, the flow between two cells by the
harmonic mean of both, and a direct sparse solver: 20 ms of one processor for each sample.

Axes: N samples, s cells along each side, n points.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.errors import require

CELLS, HIGH, LOW = 64, 12.0, 3.0


class Samples(NamedTuple):
    """``points`` float (N, n, 3): x, y and the coefficient, scaled; ``pressure`` (N, n)."""

    points: Tensor
    pressure: Tensor

    def at(self, places: Tensor) -> "Samples":
        """The points whose numbers are in ``places`` long (m) or, of each sample its own, (N, m)."""
        places = places.expand(len(self.points), -1)
        return Samples(self.points.gather(1, places[..., None].expand(-1, -1, 3)), self.pressure.gather(1, places))

    def grid(self, side: int) -> "Samples":
        """The samples on every (64 / ``side``)-th cell along each axis, in raster order."""
        step = CELLS // side
        along = torch.arange(side) * step + step // 2
        return self.at((along[:, None] * CELLS + along).flatten())


def coefficient(source: np.random.Generator, cells: int = CELLS) -> np.ndarray:
    """A field (s, s) of two values: the sign of a Gaussian one, drawn by its cosines."""
    along = np.pi * np.arange(cells)
    size = (along[:, None] ** 2 + along**2 + 9.0) ** -1.0
    waves = size * source.standard_normal((cells, cells))
    waves[0, 0] = 0.0
    field = require("scipy.fft", extra="train").idctn(waves, type=2, norm="ortho")
    return np.where(field >= 0, HIGH, LOW)


def pressure(conductivity: np.ndarray) -> np.ndarray:
    """p (s, s) at the middles of the cells of a ``conductivity`` (s, s)."""
    sparse, solve = require("scipy.sparse", extra="train"), require("scipy.sparse.linalg", extra="train").spsolve
    cells, numbers = len(conductivity), np.arange(conductivity.size).reshape(conductivity.shape)
    diagonal = np.zeros(conductivity.shape)
    rows, columns, flows = [], [], []
    for axis in (0, 1):
        a, number = (np.moveaxis(each, axis, 0) for each in (conductivity, numbers))
        total: np.ndarray = np.moveaxis(diagonal, axis, 0)  # a view
        between = 2.0 / (1.0 / a[1:] + 1.0 / a[:-1])
        total[1:] += between
        total[:-1] += between
        for end in (0, -1):  # half a cell to the border
            total[end] += 2.0 * a[end]
        for one, other in ((number[1:], number[:-1]), (number[:-1], number[1:])):
            rows.append(one.ravel())
            columns.append(other.ravel())
            flows.append(-between.ravel())
    rows.append(numbers.ravel())
    columns.append(numbers.ravel())
    flows.append(diagonal.ravel())
    matrix = sparse.csc_matrix((np.concatenate(flows), (np.concatenate(rows), np.concatenate(columns))))
    return solve(matrix, np.full(conductivity.size, 1.0 / cells**2)).reshape(conductivity.shape)


@cache
def samples(count: int, seed: int = 0) -> Samples:
    """``count`` samples on 64 x 64 cells in raster order, of one ``seed``."""
    source = np.random.default_rng(seed)
    fields = [coefficient(source) for _ in range(count)]
    solved = torch.from_numpy(np.stack([pressure(field) for field in fields])).float()
    middle = (torch.arange(CELLS) + 0.5) / CELLS
    places = torch.stack(torch.meshgrid(middle, middle, indexing="ij"), dim=-1).expand(count, -1, -1, -1)
    scaled = torch.from_numpy(np.stack(fields)).float()[..., None] > LOW
    return Samples(torch.cat([places, scaled.float()], dim=-1).flatten(1, 2), solved.flatten(1))
