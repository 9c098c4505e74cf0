"""Singular values of attention maps: how much the largest keep (paper, Figure 1), and how alike maps are.

Axes: B any leading axes, h heads, n tokens, m valid tokens, j index of a singular value (from 1), H maps.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from longform.errors import InputError


def singular_values(maps: Tensor) -> Tensor:
    """Singular values of square maps (B, m, m), largest first: float64 (B, m).

    Square roots of the eigenvalues of MᵀM in float64, faster than an SVD in float32 and nearer to one in float64: to
    1e-13 of the largest where they are above 1e-3 of it; below 1e-8 of it they are rounding.
    """
    if maps.dim() < 2 or maps.shape[-1] != maps.shape[-2]:
        raise InputError(f"attention maps are square, (B, m, m); these have the shape {tuple(maps.shape)}")
    wide = maps.double()
    return _eigenvalues(wide.mT @ wide).clamp(min=0.0).sqrt().flip(-1)


def _eigenvalues(products: Tensor) -> Tensor:
    """Eigenvalues of symmetric matrices (B, m, m), smallest first: (B, m).

    On a CPU the solver's own threads wait for one another: two were slower than one. So as many matrices at a time as
    torch has threads, a thread each; the process's number of threads is 1 meanwhile.
    """
    threads = torch.get_num_threads()
    if products.device.type != "cpu" or products.dim() < 3 or threads == 1:
        return torch.linalg.eigvalsh(products)
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(torch.linalg.eigvalsh, products.flatten(0, -3).chunk(threads)))
    finally:
        torch.set_num_threads(threads)
    return torch.cat(parts).unflatten(0, products.shape[:-2])


def valid_part(maps: Tensor, mask: Tensor | None) -> Tensor:
    """Rows and columns of one text's valid tokens: maps (h, n, n), ``mask`` bool (n,) or None -> (h, m, m)."""
    if mask is None:
        return maps
    keep = mask.nonzero()[:, 0]
    return maps.index_select(1, keep).index_select(2, keep)


def cumulative_spectrum(values: Tensor) -> Tensor:
    """Normalised cumulative spectrum, sum of the first j singular values / sum of all, not squared (paper, Figure 1).

    ``values`` (B, m), largest first -> float64 (B, m), rising to 1. A map of zeros has no spectrum: all ones.
    """
    summed = values.double().cumsum(-1)
    total = summed[..., -1:]
    return torch.where(total > 0, summed / total.clamp(min=torch.finfo(torch.float64).tiny), 1.0)


def effective_rank(values: Tensor) -> Tensor:
    """exp of the entropy (nats) of the normalised singular values (B, m): float64 (B,), from 1 to m.

    Roy and Vetterli, "The effective rank", 2007: m for m equal values, 1 where one value is all.
    """
    wide = values.double()
    share = wide / wide.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.special.entr(share).sum(-1).exp()


def smallest_index(cumulative: Tensor, share: float) -> Tensor:
    """The smallest j at which ``cumulative`` (B, m) reaches ``share`` (0 < share <= 1): long (B,), from 1 to m."""
    if not 0.0 < share <= 1.0:
        raise InputError(f"a share of the spectrum is above 0 and at most 1; got {share}")
    reached = cumulative < min(share, 1.0) - 1e-12
    return (reached.sum(-1) + 1).clamp(max=cumulative.shape[-1])


def map_directions(maps: Tensor) -> Tensor:
    """Maps (H, m, m) as vectors of length 1, (H, m²); a zero map stays zero."""
    return torch.nn.functional.normalize(maps.flatten(1), dim=1)
