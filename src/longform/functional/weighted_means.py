"""Means of runs of tokens weighted by content: slots that learn which of their tokens to keep.

K_j = sum over the tokens t of run j of p_t K_t, p = softmax over the run of a linear score of each token, and values
likewise with further scores. With scores of zero these are plain means (functional.slots). Where every text has runs of
one size the hidden states are pooled first, n D 2h multiply-adds, and W_K and W_V multiply k h pooled rows instead of n
tokens; elsewhere, and for keys that are turned by their positions, keys and values are pooled.

Axes: B batch, n tokens, S slots, c tokens a slot, h heads, t = 2 h scores of a token (keys' first), d head dimension,
D hidden.
"""

import torch
from torch import Tensor

from longform.functional.slots import Runs, in_runs, slot_of_position, weighted_pool


def run_weights(scores: Tensor, runs: Runs, mask: Tensor | None, *, limit: int) -> Tensor:
    """Softmax of ``scores`` (B, n, t) over each of ``runs``, at least in float32: (B, n, t).

    ``mask`` bool (B, n): False is left out, and has the weight zero where its run holds other tokens. ``limit``: the
    most slots there can be.
    """
    wide = scores if scores.dtype == torch.float64 else scores.float()
    if mask is not None:  # not -inf, so that a run of only padding has finite weights, of tokens that are zeros
        wide = torch.where(mask[..., None], wide, torch.finfo(wide.dtype).min)
    if runs.uniform is None:
        return _softmax_by_index(wide, slot_of_position(wide, runs.size, limit - 1), limit)
    by_run = in_runs(wide, runs.uniform, torch.finfo(wide.dtype).min)
    weights = by_run.softmax(dim=2).flatten(1, 2)
    if torch.compiler.is_compiling():  # a slice would tie the graph to lengths
        return weights.index_select(1, torch.arange(wide.shape[1], device=wide.device))
    return weights[:, : wide.shape[1]]


def _softmax_by_index(wide: Tensor, index: Tensor, limit: int) -> Tensor:
    """Softmax over the positions that have one ``index``: both (B, n, t)."""
    totals = wide.new_zeros(wide.shape[0], limit, wide.shape[2])
    peaks = totals.scatter_reduce(1, index, wide.detach(), reduce="amax", include_self=False)
    powers = (wide - peaks.gather(1, index)).exp()
    return powers / totals.scatter_add(1, index, powers).gather(1, index)


def pool_hidden(hidden: Tensor, weights: Tensor, size: int) -> Tensor:
    """Weighted sums of hidden states (B, n, D), one for each of ``weights`` (B, n, t): (t, B S, D).

    ``size``: tokens of a run; the last may be shorter.
    """
    spare = -hidden.shape[1] % size
    if spare:
        hidden = torch.nn.functional.pad(hidden, (0, 0, 0, spare))
        weights = torch.nn.functional.pad(weights, (0, 0, 0, spare))
    runs = hidden.reshape(-1, size, hidden.shape[2])
    shares = weights.to(hidden.dtype).reshape(-1, size, weights.shape[2])
    return torch.bmm(shares.transpose(1, 2), runs).transpose(0, 1)


def heads_of_pooled(pooled: Tensor, weight: Tensor, bias: Tensor | None, *, runs: int) -> Tensor:
    """W x + b of each head's own pooled rows (h, B S, D), S ``runs``: ``weight`` (h d, D), ``bias`` (h d) -> (B, h, S,
    d).
    """
    by_head = weight.unflatten(0, (pooled.shape[0], -1)).transpose(1, 2)
    if bias is None:
        out = torch.bmm(pooled, by_head)
    else:
        out = torch.baddbmm(bias.unflatten(0, (pooled.shape[0], 1, -1)), pooled, by_head)
    return out.unflatten(1, (-1, runs)).transpose(0, 1)  # not the batch, which may be empty


def pool_heads(key: Tensor, value: Tensor, weights: Tensor, runs: Runs, *, limit: int) -> tuple[Tensor, Tensor]:
    """Weighted sums of keys and values (B, n, h, d) over runs, by ``weights`` (B, n, 2 h): (B, S, h, d) each.

    Padding is zeros in both. Sums are formed in at least float32.
    """
    keys, values = weighted_pool(key.flatten(2), value.flatten(2), weights=weights, runs=runs, limit=limit)
    return keys.unflatten(2, key.shape[2:]), values.unflatten(2, value.shape[2:])
