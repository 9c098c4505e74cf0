"""Slots: n tokens shortened to at most k by mean, weighted mean, maximum or convolution over runs of tokens (paper §4).

Each slot stands for a run of c consecutive tokens. The paper's c is C = ceil(N / k) for the full length N. A shorter
document is given the smallest divisor of C that still fits it into k slots, counted on its length, so that it is
shortened no more than it must be (k tokens or fewer: one slot a token) and never depends on its neighbours in the
batch.

A mean weighted by content, K'_j = sum of p_t K_t over the tokens t of run j, has p = softmax over the run of a linear
score of each token; values have further scores. With scores of zero it is the plain mean. Where every text has runs of
one size the hidden states are pooled first, n D 2h multiply-adds, and W_K and W_V multiply k h pooled rows instead of n
tokens; elsewhere, and for keys that are turned by their positions, keys and values are pooled.

Exact tokens have a slot each for themselves, in front of the others, and are in no run: the first tokens of a text
(sinks), and those that ``global_attention_mask`` marks (Longformer, arXiv 2004.05150). Trained encoders send much of
their attention to the first token; averaged into a slot with its neighbours it is lost, and the conversion with it
(docs/lab/quality.md).

Axes: B batch, n tokens, N the longest n, k slots, S <= k slots of a text, c tokens a slot, s exact tokens, F features,
h heads, d head dimension, g = 1 or h.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.errors import InputError
from longform.functional.execution import Execution, constant, execution_mode, has_values, unrounded
from longform.functional.masks import blank_padding, document_lengths, is_compiled, unseen_lengths
from longform.functional.triton_support import DTYPES, OPTIONS, attempt, has_triton

TRITON_TOKENS, TRITON_FEATURES = 16, 128  # that are read at a time


class Runs(NamedTuple):
    """Tokens that each slot stands for.

    ``count``: valid tokens in it, float32 (B, S), S <= k; 0 marks an empty slot. ``size``: consecutive positions
    that a slot covers, long (B,): slot j covers positions j size to (j + 1) size - 1. ``uniform``: that size as an
    int where all rows have the same and it is known without asking the device, else None. ``longest``: the most
    positions that a slot of any text covers. ``exact``: positions, long (B, s), of the tokens that the first s slots
    are, which are in no run; the j of those behind them begins with 0.
    """

    count: Tensor
    size: Tensor
    uniform: int | None
    longest: int
    exact: Tensor | None = None

    @property
    def singles(self) -> int:
        """s."""
        return 0 if self.exact is None else self.exact.shape[1]


class Exact(NamedTuple):
    """Tokens that every query sees exactly: their ``positions``, long (B, s), within a text or not, and which of them
    are ``there``, bool (B, s); ``rest`` bool (B, n): all other tokens of text. ``leading``: s, where they are known to
    be the first s tokens of each text, else 0.
    """

    positions: Tensor
    there: Tensor
    rest: Tensor
    leading: int = 0


class Slots(NamedTuple):
    """Keys and values of slots, (B, h, S, d); ``usable`` bool (B, g, S) or None; ``runs`` where they stand for runs."""

    key: Tensor
    value: Tensor
    usable: Tensor | None
    runs: Runs | None


def base_slot_size(*, max_length: int, slots: int) -> int:
    """The paper's kernel and stride C = ceil(N / k), in tokens."""
    return -(-max_length // slots)


def divisors(number: int) -> tuple[int, ...]:
    """Divisors of ``number``, ascending."""
    return tuple(size for size in range(1, number + 1) if number % size == 0)


def slot_sizes(lengths: Tensor, *, sizes: tuple[int, ...], slots: int) -> Tensor:
    """For documents of ``lengths`` tokens, long (B,): the first of ``sizes`` (ascending) that needs <= ``slots``.

    Returns tokens a slot, long (B,).
    """
    candidates = constant(sizes, lengths.device)
    fits = candidates * slots >= lengths[:, None]
    return torch.where(fits, candidates, sizes[-1]).amin(dim=1)


def make_runs(
    mask: Tensor | None, counted: Tensor | None = None, *, batch: int, length: int, device: torch.device,
    sizes: tuple[int, ...], slots: int,
) -> Runs:  # fmt: skip
    """Runs of ``batch`` rows of ``length`` positions, at most ``slots`` k of them; ``mask`` bool (B, n) or None.

    ``sizes``: the tokens a slot may cover, ascending: divisors(C), or (C,) for a kernel with that many taps;
    ``counted`` bool (B, n): the tokens that runs are made of, None for those of ``mask``.
    """
    if len(sizes) == 1:
        size, uniform = torch.full((batch,), sizes[0], dtype=torch.long, device=device), sizes[0]
    elif mask is None and not torch.compiler.is_compiling():  # known without asking the device
        known = _size_for(length, sizes=sizes, slots=slots)
        size = torch.full((batch,), known, dtype=torch.long, device=device)
        uniform = known if length <= known * slots else None
    else:
        lengths = document_lengths(mask, batch=batch, length=length, device=device)
        size = slot_sizes(lengths, sizes=sizes, slots=slots)
        uniform = _uniform_size(size, length=length, sizes=sizes, slots=slots)
    counted = mask if counted is None else counted
    valid = torch.ones(batch, length, dtype=torch.float32, device=device) if counted is None else counted.float()
    count = segment_sum(valid[..., None], size, uniform, limit=slots)[..., 0]
    return Runs(count, size, uniform, sizes[-1])


def _size_for(length: int, *, sizes: tuple[int, ...], slots: int) -> int:
    """slot_sizes of one text."""
    return next((size for size in sizes if size * slots >= length), sizes[-1])


def _uniform_size(size: Tensor, *, length: int, sizes: tuple[int, ...], slots: int) -> int | None:
    """The size that all rows share, unless there is padding beyond ``slots`` of that size; None in compiled graphs and
    under transforms, which have no values to look at.
    """
    if not has_values(size):
        return None
    if (lengths := unseen_lengths()) is not None:
        first, last = (_size_for(end, sizes=sizes, slots=slots) for end in (lengths[0], lengths[-1]))
        return first if first == last and length <= first * slots else None
    first = int(size[0]) if len(size) else sizes[-1]  # of an empty batch any
    return first if length <= first * slots and bool((size == first).all()) else None


def in_runs(x: Tensor, size: int, fill: float) -> Tensor:
    """x (B, n, F) -> (B, S, size, F), the last run filled up with ``fill``."""
    batch, length, features = x.shape
    runs = (length + size - 1) // size
    if torch.compiler.is_compiling():  # padding by a symbolic amount, or one run, would tie the graph to some lengths
        runs = length // size + 2
        positions = torch.arange(runs, device=x.device)[:, None] * size + torch.arange(size, device=x.device)
        return torch.where((positions < length)[..., None], x[:, positions.clamp(max=length - 1)], fill)
    if length % size:
        x = torch.nn.functional.pad(x, (0, 0, 0, runs * size - length), value=fill)
    return x.reshape(batch, runs, size, features)


def slot_of_position(x: Tensor, size: Tensor, last: int) -> Tensor:
    """The slot of each position of x (B, n, F), runs of ``size`` long (B,), at most ``last``: long, x's shape."""
    positions = torch.arange(x.shape[1], device=x.device)
    index = (positions // size[:, None]).clamp(max=last)
    return index[..., None].expand(x.shape)


def segment_sum(x: Tensor, size: Tensor, uniform: int | None, *, limit: int, counted: Tensor | None = None) -> Tensor:
    """Sum of x (B, n, F) over runs of ``size`` long (B,) positions -> (B, S, F), S <= ``limit``.

    ``uniform``: the size as an int where all rows share it. ``counted`` bool (B, n): the tokens that are summed, None
    for all. Accumulates in at least float32.
    """
    if uniform is not None and uniform > 1 and not torch.compiler.is_compiling():
        whole = x.shape[1] // uniform * uniform
        parts = [slice(0, whole), slice(whole, None)] if x.shape[1] % uniform else [slice(None)]
        return torch.cat([_sums_of_runs(x[:, part], uniform, counted, part) for part in parts], dim=1)
    x = blank_padding(x, counted)
    if uniform is not None:
        return in_runs(x, uniform, 0.0).sum(dim=2) if uniform > 1 or torch.compiler.is_compiling() else x
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    index = slot_of_position(x, size, limit - 1)
    return wide.new_zeros(x.shape[0], limit, x.shape[2]).scatter_add(1, index, wide).to(x.dtype)


def _sums_of_runs(x: Tensor, size: int, counted: Tensor | None, part: slice) -> Tensor:
    """segment_sum of the ``part`` x (B, m, F) of a text, of runs of one size; no copy of whole runs of one text."""
    runs = in_runs(x, size, 0.0)
    if counted is None:
        return runs.sum(dim=2)
    # A product: as fast as the sum, where blanking what is not counted took three times as long.
    weights = in_runs(counted[:, part, None].to(x.dtype), size, 0.0)[..., 0]
    with unrounded(x):
        return torch.einsum("bsc,bscf->bsf", weights, runs)


def mean_pool(*tensors: Tensor, runs: Runs, limit: int, counted: Tensor | None = None) -> list[Tensor]:
    """Mean of each slot's valid tokens, of each of ``tensors`` (B, n, F), padding blanked: (B, S, F) each; an empty
    slot gives zeros.

    ``limit``: the most slots there can be (k). ``counted`` bool (B, n): the tokens that ``runs`` counts, where these
    are not all of the text.
    """
    if tensors[0].is_cuda and runs.uniform is not None and not torch.is_grad_enabled() and suits_triton(*tensors):
        means = [pool_by_triton(x, runs, counted) for x in tensors]
        if all(x is not NotImplemented for x in means):
            return means
    count, means = runs.count.clamp(min=1.0)[..., None], []
    for x in tensors:
        total = segment_sum(x, runs.size, runs.uniform, limit=limit, counted=counted)
        means.append(total / count.to(total.dtype))
    return means


def _weighted_sum(x: Tensor, weights: Tensor, runs: Runs, *, limit: int) -> Tensor:
    """Sums of x (B, n, F) times ``weights`` (B, n, h) over runs, formed in at least float32: (B, S, F)."""
    parts = (x.unflatten(2, (weights.shape[2], -1)) * weights.to(x.dtype)[..., None]).flatten(2)
    if runs.uniform is not None:
        return in_runs(parts, runs.uniform, 0.0).sum(dim=2)
    wide = parts if x.dtype in (torch.float32, torch.float64) else parts.float()
    index = slot_of_position(wide, runs.size, limit - 1)
    return wide.new_zeros(x.shape[0], limit, x.shape[2]).scatter_add(1, index, wide).to(x.dtype)


def suits_triton(*tensors: Tensor) -> bool:
    """Whether ``pool_by_triton`` takes such tensors (B, n, F) here: some tokens, features side by side, half precision
    or float32.
    """
    fit = all(x.numel() > 0 and x.stride(2) == 1 and x.dtype in DTYPES for x in tensors)
    return fit and execution_mode() is Execution.PLAIN and has_triton()


def pool_by_triton(x: Tensor, runs: Runs, weights: Tensor | None = None) -> Any:
    """Means of x (B, n, F) over runs of one size, of the tokens where bool ``weights`` (B, n) are True, or its sums
    times ``weights`` (B, n, h), without gradients: (B, S, F); NotImplemented where Triton cannot compile it.
    """
    from longform.functional import slot_programs as programs

    batch, length, features = x.shape
    size, count, strides, heads = runs.uniform, runs.count.contiguous(), (0, 0), 1
    assert size is not None
    if weights is not None and weights.dtype == torch.bool:
        weights = weights[..., None].to(x.dtype)
    elif weights is not None:
        count, heads = None, weights.shape[2]
    if weights is not None:
        strides = weights.stride()[:2]
    number = -(-length // size)
    out = x.new_empty(batch, number, features)
    tokens = min(TRITON_TOKENS, 1 << (size - 1).bit_length())
    given: Any = x, weights, count, out, *x.stride()[:2], *strides, length, number, size
    sizes: Any = {"FEATURES": features, "HEAD": features // heads, "TOKENS": tokens, "BLOCK": TRITON_FEATURES}

    def pooled() -> Tensor:
        with torch.cuda.device_of(x):
            programs.pool[(batch * number, -(-features // TRITON_FEATURES))](*given, **sizes, **OPTIONS)
        return out

    return attempt(("slots", x.dtype, features), pooled)


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
    """Weighted sums of keys and values (B, n, h, d) over runs, by ``weights`` (B, n, 2 h), those of keys first: (B, S,
    h, d) each.

    Padding is zeros in both. Sums are formed in at least float32.
    """
    keys, values, (first, second) = key.flatten(2), value.flatten(2), weights.chunk(2, dim=2)
    pooled: Any = NotImplemented, NotImplemented
    one_size = runs.uniform is not None
    if weights.is_cuda and one_size and not torch.is_grad_enabled() and suits_triton(keys, values, weights):
        pooled = pool_by_triton(keys, runs, first), pool_by_triton(values, runs, second)
    if pooled[0] is NotImplemented or pooled[1] is NotImplemented:
        pooled = _weighted_sum(keys, first, runs, limit=limit), _weighted_sum(values, second, runs, limit=limit)
    return pooled[0].unflatten(2, key.shape[2:]), pooled[1].unflatten(2, value.shape[2:])


def max_pool(x: Tensor, runs: Runs, mask: Tensor | None, *, limit: int) -> Tensor:
    """Elementwise maximum over each slot's valid tokens: x (B, n, F) -> (B, S, F); an empty slot gives zeros."""
    lowest = torch.finfo(x.dtype).min
    if mask is not None:
        x = torch.where(mask[..., None], x, lowest)
    if runs.uniform is not None:
        peak = in_runs(x, runs.uniform, lowest).amax(dim=2)
    else:
        index = slot_of_position(x, runs.size, limit - 1)
        start = x.new_full((x.shape[0], limit, x.shape[2]), lowest)
        peak = start.scatter_reduce(1, index, x, reduce="amax", include_self=True)
    return torch.where(runs.count[..., None] > 0, peak, 0.0)


def convolve(x: Tensor, kernel: Tensor, mask: Tensor | None) -> Tensor:
    """Depthwise convolution along the sequence with kernel = stride = C (paper §4).

    x (B, n, h, d) with padding blanked; kernel (h, d, C), or (1, d, C) where heads share it -> (B, S, h, d),
    S = ceil(n / C). Each channel is scaled by sum|w| over all taps / sum|w| over valid taps, so that equal taps
    give the mean of the valid tokens.
    """
    batch, length, heads, dim = x.shape
    taps = kernel.shape[-1]
    by_run = in_runs(x.reshape(batch, length, heads * dim), taps, 0.0).unflatten(-1, (heads, dim))
    weights = kernel.permute(2, 0, 1).to(x.dtype)  # (C, h, d)
    total = (by_run * weights).sum(dim=2)
    valid = x.new_ones(batch, length, 1) if mask is None else mask[..., None].to(x.dtype)
    present = in_runs(valid, taps, 0.0)[..., 0]  # (B, S, C)
    size = kernel.abs().to(x.dtype)
    mass = torch.einsum("bsc,hdc->bshd", present, size)
    seen = mass > 0
    return total * torch.where(seen, size.sum(dim=-1) / torch.where(seen, mass, 1.0), 0.0)


def leading_tokens(mask: Tensor | None, *, batch: int, length: int, device: torch.device, sinks: int) -> Exact:
    """The first ``sinks`` tokens of texts of ``length`` tokens as exact ones; ``mask`` bool (B, n) or None.

    A compiled graph always has as many: fewer would tie it to lengths.
    """
    fewer = sinks if torch.compiler.is_compiling() else min(sinks, length)
    positions = torch.arange(fewer, device=device).expand(batch, -1)
    there, rest = positions < length, (torch.arange(length, device=device) >= sinks).expand(batch, -1)
    if mask is None:
        return Exact(positions, there, rest, fewer)
    return Exact(positions, there & picked(mask, positions), rest & mask)


def marked_tokens(
    marked: Tensor, mask: Tensor | None, *, batch: int, length: int, device: torch.device, sinks: int, most: int
) -> Exact:
    """The tokens of text that are ``marked``, bool (B, n), and the first ``sinks``; ``mask`` bool (B, n) or None.

    ``most``: of marked tokens in a text; a graph, which looks at no values, has slots for so many. Raises InputError,
    and a compiled graph RuntimeError, where there are more.
    """
    text = torch.ones(batch, length, dtype=torch.bool, device=device) if mask is None else mask
    chosen = (marked | (torch.arange(length, device=device) < sinks)) & text
    number = chosen.sum(dim=1, keepdim=True)
    if is_compiled():
        torch._assert_async((number <= most + sinks).all(), "global_attention_mask marks too many tokens of a text")
    known = has_values(number) and unseen_lengths() is None
    found = int(number.max()) if known and batch else most + sinks
    if found > most + sinks:
        raise InputError(
            f"global_attention_mask marks {found - sinks} tokens of a text beside {sinks} sinks, at most {most} may be "
            "seen by every query, since each costs what a slot does: mark fewer, or set max_global_tokens of the layers"
        )
    places = torch.arange(found, device=device)
    first = (~chosen).long().argsort(dim=1, stable=True)
    return Exact(first.index_select(1, places.clamp(max=length - 1)), places < number, text & ~chosen)


def picked(x: Tensor, positions: Tensor) -> Tensor:
    """x (B, n, ...) at ``positions`` long (B, s), the last token where they are past it: (B, s, ...)."""
    index = positions.clamp(max=x.shape[1] - 1).view(*positions.shape, *(1,) * (x.dim() - 2))
    return x.gather(1, index.expand(*positions.shape, *x.shape[2:]))


def with_exact_runs(runs: Runs, exact: Exact) -> Runs:
    """``runs``, and in front of them those of the ``exact`` tokens, of one token each or none."""
    return runs._replace(count=torch.cat([exact.there.float(), runs.count], dim=1), exact=exact.positions)
