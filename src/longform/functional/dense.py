"""Shortening a sequence by a dense matrix: E for keys, F for values (paper §4, equation 7).

A document of n < N tokens uses the first n columns. Each row is rescaled by its Euclidean norm over all N columns
divided by its norm over the valid ones, so that keys keep their size whatever the length; at full length without
padding the factor is 1 and the formula is the paper's. Rows that a text hardly meets are left out of it (``FAINT``): E
begun as block means has zeros elsewhere, which one step of training makes small numbers, and a row of them, rescaled,
would be a slot of noise as loud as any. E (X W) and (E X) W are the same number up to rounding; which takes fewer
multiply-adds is counted (``project_first_is_cheaper``); a compiled graph decides for the full length, once.

Axes: B batch, n tokens, N columns of E, k slots, D hidden, h heads, d head dimension, g = 1 (heads share E) or h.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import functional

from longform.functional.linear import linear

# A row's share is its norm on the text over its whole norm. A row is left out where its share is less than this part of
# the greatest share that a row has there. Block means of up to 24 tokens are used from their first token on; of longer
# ones not the first few tokens, a 25th of a block.
FAINT = 0.2


class Rows(NamedTuple):
    """The part of E that a batch uses.

    ``matrix`` (g, k, n) of ``columns`` N in all; ``scale`` (B or 1, g, k) or None for 1; ``total`` (B or 1, g, k):
    each scaled row's sum over valid positions, which multiplies the bias; ``occupied`` bool (B, g, k) or None: rows
    that are not faint on the text.
    """

    matrix: Tensor
    columns: int
    scale: Tensor | None
    total: Tensor
    occupied: Tensor | None


def select_rows(matrix: Tensor, mask: Tensor | None, *, length: int, rescale: bool = True) -> Rows:
    """Rows of E (g, k, N) for ``length`` tokens under ``mask`` bool (B, n) or None; ``rescale`` False: as they are."""
    columns, compiling = matrix.shape[2], torch.compiler.is_compiling()
    if compiling:  # a slice puts the guard n != N into exported graphs
        part = matrix.index_select(2, torch.arange(length, device=matrix.device))
    else:
        part = matrix if length == columns else matrix[..., :length]
    if not compiling and mask is None and length == columns:  # the length is asked last: that is a guard
        return Rows(part, columns, None, part.sum(dim=-1)[None], None)
    if not rescale:
        weight = part.new_ones(1, length) if mask is None else mask.to(matrix.dtype)
        return Rows(part, columns, None, torch.einsum("bn,gkn->bgk", weight, part), None)
    norm = vector_norm(matrix, dim=-1)
    if mask is None:
        valid_norm, total = vector_norm(part, dim=-1)[None], part.sum(dim=-1)[None]
    else:
        weight = mask.to(matrix.dtype)
        mass = torch.einsum("bn,gkn->bgk", weight, part.square())
        valid_norm = torch.where(mass > 0, torch.where(mass > 0, mass, 1.0).sqrt(), 0.0)  # sqrt'(0) is infinite
        total = torch.einsum("bn,gkn->bgk", weight, part)
    share = valid_norm / torch.where(norm > 0, norm, 1.0)
    seen = (share > 0) & (share >= FAINT * share.amax(dim=-1, keepdim=True))
    scale = torch.where(seen, norm / torch.where(seen, valid_norm, 1.0), 1.0)
    occupied = seen | (norm == 0)
    return Rows(part, columns, scale, total * scale, occupied)


def dense_project(x: Tensor, rows: Rows) -> Tensor:
    """E' X with padding of x blanked.

    x (B, n, D) with one shared E -> (B, 1, k, D); x (B, n, h, d) with an E per head -> (B, h, k, d);
    x (B, n, D) with an E per head -> (B, h, k, D).
    """
    matrix = rows.matrix.to(x.dtype)
    if x.dim() == 4:  # torch.matmul would copy E for every text
        texts = x.permute(2, 1, 0, 3)
        short = torch.bmm(matrix, texts.flatten(2)).unflatten(2, texts.shape[2:]).permute(2, 0, 1, 3)
    else:  # and here x for every head
        short = torch.bmm(matrix.flatten(0, 1)[None].expand(x.shape[0], -1, -1), x).unflatten(1, matrix.shape[:2])
    return short if rows.scale is None else short * rows.scale.to(x.dtype)[..., None]


def project_first_is_cheaper(*, n: int, k: int, hidden: int, heads: int, per_head: bool, shared: bool = False) -> bool:
    """True where (E X) W takes fewer multiply-adds than E (X W), or no more: its intermediate result is shorter.

    Both are the same number up to rounding. E (X W) takes n D² for X W and n k D for the shortening, whatever the heads
    share; (E X) W takes n k D, for each head that has another E, and k D². ``shared``: keys and values share E, so that
    one E X serves both.
    """
    shorten = n * k * hidden * (heads if per_head else 1)
    first = (1 if shared else 2) * shorten + 2 * k * hidden * hidden
    return first <= 2 * (n * hidden * hidden + n * k * hidden)


def project_heads(full: Tensor, rows: Rows) -> Tensor:
    """E' of the keys or values of every token: (B, n, h, d), padding blanked -> (B, h, k, d)."""
    if rows.matrix.shape[0] > 1:
        return dense_project(full, rows)
    return dense_project(full.flatten(2), rows)[:, 0].unflatten(2, full.shape[2:]).transpose(1, 2)


def shortened_heads(
    x: Tensor, weight: Tensor, bias: Tensor | None, rows: Rows, *, heads: int, short: Tensor | None = None
) -> Tensor:
    """E'(X Wᵀ + 1 bᵀ), the keys or values of every head: x (B, n, D) with padding blanked, weight (h d, D), bias (h d)
    -> (B, h, k, d).

    ``short`` (B, g, k, D): E' X, where that is formed first; None where keys are formed of every token and shortened.
    E (X Wᵀ + 1 bᵀ) = E (X Wᵀ) + rowsum(E) bᵀ is exact, with padding too: blanked tokens add to neither sum.
    """
    if short is None:
        out = project_heads(linear(x, weight, None).unflatten(-1, (heads, -1)), rows)
    elif short.shape[1] > 1:
        out = torch.matmul(short, weight.view(heads, -1, weight.shape[1]).transpose(1, 2))
    else:
        one, is_plain = short[:, 0], weight.dim() == 2 and not weight.is_mkldnn
        product = functional.linear(one, weight) if is_plain else linear(one, weight, None)
        out = product.unflatten(2, (heads, -1)).transpose(1, 2)
    if bias is None:
        return out
    total = rows.total.to(out.dtype)[..., None]
    return torch.addcmul(out, total, bias.to(out.dtype).unflatten(0, (out.shape[1], 1, -1)))
