"""Shortening a sequence by a dense matrix: E for keys, F for values (paper §4, equation 7).

A document of n < N tokens uses the first n columns. Each row is rescaled by its Euclidean norm over all N columns
divided by its norm over the valid ones, so that keys keep their size whatever the length; at full length without
padding the factor is 1 and the formula is the paper's.

Axes: B batch, n tokens, N columns of E, k slots, D hidden, h heads, d head dimension, g = 1 (heads share E) or h.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from longform.functional.association import project_first_is_cheaper


class Rows(NamedTuple):
    """The part of E that a batch uses.

    ``matrix`` (g, k, n) of ``columns`` N in all; ``scale`` (B or 1, g, k) or None for 1; ``total`` (B or 1, g, k):
    each scaled row's sum over valid positions, which multiplies the bias; ``occupied`` bool (B, g, k) or None: rows
    with valid mass.
    """

    matrix: Tensor
    columns: int
    scale: Tensor | None
    total: Tensor
    occupied: Tensor | None


def select_rows(matrix: Tensor, mask: Tensor | None, *, length: int) -> Rows:
    """Rows of E (g, k, N) for ``length`` tokens under ``mask`` bool (B, n) or None."""
    # index_select, not slicing: a slice puts the guard n != N into exported graphs.
    part = matrix.index_select(2, torch.arange(length, device=matrix.device))
    whole = not torch.compiler.is_compiling() and length == matrix.shape[2]
    if mask is None and whole:
        return Rows(part, matrix.shape[2], None, part.sum(dim=-1)[None], None)
    mass = matrix.square().sum(dim=-1)
    if mask is None:
        valid_mass, total = part.square().sum(dim=-1)[None], part.sum(dim=-1)[None]
    else:
        weight = mask.to(matrix.dtype)
        valid_mass = torch.einsum("bn,gkn->bgk", weight, part.square())
        total = torch.einsum("bn,gkn->bgk", weight, part)
    seen = valid_mass > 0
    scale = torch.where(seen, mass / torch.where(seen, valid_mass, 1.0), 1.0).sqrt()
    occupied = seen | (mass == 0)
    return Rows(part, matrix.shape[2], scale, total * scale, occupied)


def dense_project(x: Tensor, rows: Rows) -> Tensor:
    """E' X with padding of x blanked.

    x (B, n, D) with one shared E -> (B, 1, k, D); x (B, n, h, d) with an E per head -> (B, h, k, d);
    x (B, n, D) with an E per head -> (B, h, k, D).
    """
    matrix = rows.matrix.to(x.dtype)
    short = torch.matmul(matrix, x.transpose(1, 2) if x.dim() == 4 else x[:, None])
    return short if rows.scale is None else short * rows.scale.to(x.dtype)[..., None]


def keys_come_last(rows: Rows, *, hidden: int, heads: int) -> bool:
    """Whether (E X) W is cheaper than E (X W); a compiled graph decides for the full length, once."""
    groups, slots, length = rows.matrix.shape
    n = rows.columns if torch.compiler.is_compiling() else length
    return project_first_is_cheaper(n=n, k=slots, hidden=hidden, heads=heads, per_head=groups > 1)


def shortened_heads(x: Tensor, weight: Tensor, bias: Tensor | None, rows: Rows, *, heads: int) -> Tensor:
    """E'(X Wᵀ + 1 bᵀ), the keys or values of every head, in the cheaper order of products.

    x (B, n, D) with padding blanked, weight (h d, D), bias (h d) -> (B, h, k, d).
    E (X Wᵀ + 1 bᵀ) = (E X) Wᵀ + rowsum(E) bᵀ is exact, with padding too: blanked tokens add to neither sum.
    """
    batch, length, hidden = x.shape
    groups = rows.matrix.shape[0]
    if keys_come_last(rows, hidden=hidden, heads=heads):
        return project_shortened(dense_project(x, rows), weight, bias, rows, heads=heads)
    full = linear(x, weight).view(batch, length, heads, -1)
    short = dense_project(full if groups > 1 else full.flatten(2), rows)
    if groups == 1:
        short = short[:, 0].unflatten(2, (heads, -1)).transpose(1, 2)
    return short if bias is None else short + _spread_bias(bias, rows, heads)


def project_shortened(short: Tensor, weight: Tensor, bias: Tensor | None, rows: Rows, *, heads: int) -> Tensor:
    """(E X) Wᵀ + rowsum(E) bᵀ by head: short (B, g, k, D), weight (h d, D) -> (B, h, k, d)."""
    if short.shape[1] == 1:
        keys = linear(short[:, 0], weight).unflatten(2, (heads, -1)).transpose(1, 2)
    else:
        keys = torch.matmul(short, weight.view(heads, -1, weight.shape[1]).transpose(1, 2))
    return keys if bias is None else keys + _spread_bias(bias, rows, heads)


def _spread_bias(bias: Tensor, rows: Rows, heads: int) -> Tensor:
    return rows.total.to(bias.dtype)[..., None] * bias.view(heads, 1, -1)
