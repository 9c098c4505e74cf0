"""Similarity of heads: how alike their attention maps are.

Axes: n tokens, m valid tokens, L layers, h heads, H = L h heads of the whole model, layer by layer.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.errors import InputError
from longform_lab.spectrum.capture import captured_maps
from longform_lab.spectrum.singular_values import map_directions


def head_similarity(model: Any, texts: Iterable[Tensor]) -> Tensor:
    """Mean cosine of every two heads' maps over ``texts``, long (m,) each: float64 (H, H).

    All maps of one text are in memory together, once: 4 H m² bytes; the number of texts does not matter.
    """
    total, count = torch.zeros(()), 0
    for ids in texts:
        total, count = total + _similarity(model, ids).double().cpu(), count + 1
    if not count:
        raise InputError("no text to compare heads on")
    return total / count


def _similarity(model: Any, ids: Tensor) -> Tensor:
    """Cosine of every two heads' maps of one text, long (m,): (H, H), symmetric."""
    seen: list[Tensor] = []  # a layer each, (h, m²)
    rows: list[Tensor] = []  # a layer each, its heads beside those of the layers up to it
    for maps in captured_maps(model, ids[None].to(model.device)):
        seen.append(map_directions(maps[0]))
        rows.append(torch.cat([seen[-1] @ before.T for before in seen], dim=1))
    heads = rows[-1].shape[1]
    lower = torch.cat([pad(row, (0, heads - row.shape[1])) for row in rows]).tril()
    return lower + lower.tril(-1).T


def inside_and_across(similarity: Tensor, heads: int) -> tuple[Tensor, float]:
    """Mean similarity of different heads of one layer, float64 (L,), and of heads of different layers."""
    layer = torch.arange(len(similarity)) // heads
    same = layer[:, None] == layer
    blocks = similarity.unflatten(0, (-1, heads)).unflatten(2, (-1, heads)).diagonal(dim1=0, dim2=2)  # h, h, L
    off = ~torch.eye(heads, dtype=torch.bool)
    inside = blocks[off].mean(0) if heads > 1 else torch.ones(len(similarity))
    return inside, float(similarity[~same].mean()) if bool((~same).any()) else 1.0
