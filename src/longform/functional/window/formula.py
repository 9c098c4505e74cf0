"""Attention with a window as it is written, in blocks: it runs anywhere, also in compiled and exported graphs.

The sequence is cut into blocks of w positions. A query in block i sees the valid tokens of blocks i-1, i, i+1
exactly, and every slot that covers none of them. Each token is thus counted once: a near one by itself, a far one in
its slot, which stands for ``count`` tokens, hence log(count) on its logit. All slots together are weighed by a bias
per head, and by min(0, log(budget / far tokens)): all slots together stand for at most ``budget`` tokens. Exact tokens
(slots.py) have a slot each outside that budget. A text of two blocks or less gets full attention.

Two other orders are kept to by few kernels. ``causal``: a query sees the tokens of blocks i-1 and i up to its
own, and the slots of earlier blocks. ``neighbours``: blocks are tiles of a grid, and each sees the tiles around it.

A block may also see the tokens of some far slots in place of these: selection.py says which.

A bias by distance (functional.positions.distances) is added where there is one. A slot that is seen is w + 1 tokens or
more away, and the window is so wide that all these distances have one bias on each side: it is the slot's, exactly.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b = ceil(n / w) blocks.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from longform.functional.positions.distances import between, beyond
from longform.functional.slots import Runs

HIDDEN = float("-inf")


def block_count(length: int, window: int) -> int:
    """Blocks of ``window`` tokens that hold ``length`` tokens; a compiled graph adds empty ones, never to have one."""
    return length // window + 2 if torch.compiler.is_compiling() else -(-length // window)


def block_positions(length: int, window: int, device: torch.device) -> Tensor:
    """Positions of each block's own tokens, long (b, w); those of the last block may pass the end."""
    starts = torch.arange(block_count(length, window), device=device) * window
    return starts[:, None] + torch.arange(window, device=device)


def blocks_before(length: int, window: int, device: torch.device) -> Tensor:
    """Blocks that each block of a causal text sees exactly: the one before it and itself, long (b, 2); -1 for none."""
    return torch.arange(block_count(length, window), device=device)[:, None] + torch.arange(-1, 1, device=device)


def neighbour_positions(length: int, window: int, device: torch.device, neighbours: Tensor | None = None) -> Tensor:
    """Positions that each block sees exactly, long (b, 3 w); some lie before the start or past the end.

    ``neighbours``: numbers of the m blocks that each sees instead of three, long (b, m), -1 for none; then (b, m w).
    """
    if neighbours is not None:
        return (neighbours[..., None] * window + torch.arange(window, device=device)).flatten(1)
    starts = torch.arange(block_count(length, window), device=device) * window
    return starts[:, None] + torch.arange(-window, 2 * window, device=device)


def gather(x: Tensor, positions: Tensor) -> Tensor:
    """x (..., n, d) at ``positions`` (b, m) -> (..., b, m, d); a position outside takes the nearest one inside.

    Gathered rather than padded: padding by a symbolic amount would tie an exported graph to some lengths.
    """
    return x[..., positions.clamp(0, x.shape[-2] - 1), :]


def gather_by_head(x: Tensor, positions: Tensor) -> Tensor:
    """x (B, h, n, d) at the ``positions`` (B, h, b, t) of each head: (B, h, b, t, d).

    Indexed by all axes: gathering along one folds b and t together, which ties an exported graph to some lengths.
    """
    batch = torch.arange(x.shape[0], device=x.device)[:, None, None, None]
    head = torch.arange(x.shape[1], device=x.device)[:, None, None]
    return x[batch, head, positions]


def near_bias(around: Tensor, mask: Tensor | None, *, length: int, dtype: torch.dtype) -> Tensor:
    """0 where positions ``around`` blocks, long (b, m), are tokens of text, else -inf: (B, b, m); ``mask`` bool (B, n)
    or None, then (1, b, m).
    """
    seen = ((around >= 0) & (around < length))[None]
    if mask is not None:
        seen = seen & gather(mask[..., None], around)[..., 0]
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, HIDDEN)


class Blocks(NamedTuple):
    """Tokens and slots that each block sees: positions of its ``own`` tokens, long (b, w), and of those that it sees
    exactly: ``around``, long (b, m), and ``tokens`` of selected slots, long (B, h, b, t), or None. Biases of all these,
    ``near`` (B or 1, h or 1, b, m + t), and of the slots, ``far`` (B, h or 1, b, S).
    """

    own: Tensor
    around: Tensor
    near: Tensor
    far: Tensor
    tokens: Tensor | None = None

    def exact(self, x: Tensor) -> Tensor:
        """Keys or values (B, h, n, d) of the tokens that each block sees exactly: (B, h, b, m + t, d)."""
        near = x[..., self.around.clamp(0, x.shape[2] - 1), :]  # see ``gather``
        return near if self.tokens is None else torch.cat([near, gather_by_head(x, self.tokens)], dim=3)


def blocks_of(
    mask: Tensor | None,
    runs: Runs,
    neighbours: Tensor | None = None,
    *,
    length: int,
    window: int,
    dtype: torch.dtype,
    **options: Any,
) -> Blocks:
    """The blocks of texts of ``length`` tokens; ``mask`` bool (B, n) or None; ``neighbours``: neighbour_positions;
    ``options``: of far_parts.
    """
    device = runs.count.device
    around = neighbour_positions(length, window, device, neighbours)
    near = near_bias(around, mask, length=length, dtype=dtype)
    parts = far_parts(runs, length=length, window=window, dtype=dtype, neighbours=neighbours, **options)
    return Blocks(block_positions(length, window, device), around, near[:, None], far_bias(parts)[:, None])


class FarParts(NamedTuple):
    """Bias on the logits of slots, taken apart: nothing here is of all pairs of blocks and slots.

    ``home`` long (B, S): the block in which a slot begins; ``logit`` (B, S): log(count), -inf for an empty one;
    ``blocks`` long (b,): the numbers of the blocks; ``less`` (B, b), at most 0, or None without a budget: what those
    slots get besides that are ``counted``, bool (S,): all but exact tokens. ``neighbours``: see neighbour_positions.
    """

    home: Tensor
    logit: Tensor
    blocks: Tensor
    less: Tensor | None
    counted: Tensor
    neighbours: Tensor | None = None
    causal: bool = False

    @property
    def far(self) -> Tensor:
        """The slots that each block sees, bool (B, b, S): none in its reach, and none after it in a causal text."""
        home, blocks = self.home[:, None, :], self.blocks[:, None]
        if self.causal:
            return home < blocks - 1
        if self.neighbours is None:
            return (home - blocks).abs() > 1
        return (self.neighbours[..., None] != home[:, :, None]).all(dim=2)


def far_parts(
    runs: Runs, *, length: int, window: int, dtype: torch.dtype, budget: float | None = None,
    first: int = 0, neighbours: Tensor | None = None, causal: bool = False,
) -> FarParts:  # fmt: skip
    """log(count) for each slot and min(0, log(budget / far tokens)) for each block.

    Slots of exact tokens are not in the budget. The blocks are those of ``length`` tokens after the ``first`` blocks of
    the text.
    """
    device = runs.count.device
    blocks = torch.arange(block_count(length, window), device=device) + first
    home = home_blocks(runs, window=window)
    count, less = runs.count.to(dtype), None
    counted = torch.arange(count.shape[1], device=device) >= runs.singles
    parts = FarParts(home, count.log(), blocks, less, counted, neighbours, causal)
    if budget is None:
        return parts
    tokens = torch.where(counted & parts.far, count[:, None, :], 0.0).sum(dim=-1).clamp(min=1.0)
    return parts._replace(less=(budget / tokens).log().clamp(max=0.0))


def far_bias(parts: FarParts) -> Tensor:
    """Bias on the logits of slots: (B, b, S), -inf for those in a block's reach and empty ones."""
    logits = parts.logit[:, None, :]
    if parts.less is not None:
        logits = logits + torch.where(parts.counted, parts.less[:, :, None], 0.0)
    return torch.where(parts.far, logits, HIDDEN)


def home_blocks(runs: Runs, *, window: int) -> Tensor:
    """The block in which each slot begins, or its exact token stands: long (B, S)."""
    begins = torch.arange(runs.count.shape[1] - runs.singles, device=runs.count.device) * runs.size[:, None]
    return (begins if runs.exact is None else torch.cat([runs.exact, begins], dim=1)) // window


def before_or_at(window: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 where a token of a block or the one before is not after a query of the block, else -inf: (1, w, 2 w)."""
    query, key = torch.arange(window, device=device)[:, None], torch.arange(-window, window, device=device)
    return torch.zeros(1, window, 2 * window, dtype=dtype, device=device).masked_fill(key > query, HIDDEN)


def near_distances(bias: Tensor, window: int) -> Tensor:
    """Addends by the ``bias`` by distance (h, 2 r + 1) for the queries of a block and its neighbours: (h, w, 3 w)."""
    own = torch.arange(window, device=bias.device)
    return between(bias, own, torch.arange(-window, 2 * window, device=bias.device))


def far_distances(bias: Tensor, runs: Runs, *, length: int, window: int, first: int = 0) -> Tensor:
    """Addends by the ``bias`` by distance (h, 2 r + 1) for the queries of each block and the slots: (B, h, b, S).

    ``first``: as in ``far_parts``.
    """
    blocks = torch.arange(block_count(length, window), device=bias.device) + first
    home = home_blocks(runs, window=window)
    return beyond(bias, home[:, None] < blocks[:, None]).transpose(0, 1)


def block_weights(
    query: Tensor,
    key: Tensor,
    slot_key: Tensor,
    blocks: Blocks,
    head_bias: Tensor | None,
    distances: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The weights of each block: of slots (B, h, b, w, S) and of tokens (B, h, b, w, 3 w), or 3 w + t with selection.

    query, key (B, h, n, d), slot_key (B, h, S, d), ``head_bias`` (h) or None; ``distances``: WindowCall.distances.
    """
    own = gather(query * query.shape[-1] ** -0.5, blocks.own)
    near_logits = own @ blocks.exact(key).transpose(-1, -2) + blocks.near[..., None, :]
    far_logits = own @ slot_key[:, :, None].transpose(-1, -2) + blocks.far[..., None, :]
    if head_bias is not None:
        far_logits = far_logits + head_bias[:, None, None, None]
    if distances is not None:
        near_logits, far_logits = near_logits + distances[0], far_logits + distances[1][:, :, :, None]
    near_weights, far_weights = joint_softmax(near_logits, far_logits)
    return far_weights, near_weights


def attended(
    of_blocks: tuple[Tensor, Tensor], value: Tensor, slot_value: Tensor, blocks: Blocks, dropout: float = 0.0
) -> Tensor:
    """The context of the weights of each block, as above, some of them dropped: (B, h, n, d), anything on padding."""
    length, dtype = value.shape[2], value.dtype
    far_weights, near_weights = of_blocks
    out = drop(far_weights, dropout).to(dtype) @ slot_value[:, :, None]
    out = out + drop(near_weights, dropout).to(dtype) @ blocks.exact(value)
    return out.flatten(2, 3).index_select(2, torch.arange(length, device=value.device))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slot_key: Tensor,
    slot_value: Tensor,
    near: Tensor,
    far: Tensor,
    head_bias: Tensor,
    tokens: Tensor | None,
    window: int,
) -> Tensor:
    """Both, with what Blocks has, no dropout or distances: (B, h, n, d), anything on padding."""
    length, device = query.shape[2], query.device
    around = neighbour_positions(length, window, device)
    blocks = Blocks(block_positions(length, window, device), around, near, far, tokens)
    of_blocks = block_weights(query, key, slot_key, blocks, head_bias)
    return attended(of_blocks, value, slot_value, blocks)


def weights_of_queries(of_blocks: tuple[Tensor, Tensor], length: int) -> Tensor:
    """The weights of each block, as above, as one row for each query: (B, h, n, S + 3 w), slots first."""
    return torch.cat(of_blocks, dim=-1).flatten(2, 3)[:, :, :length]


def weights_of_blocks(of_queries: Tensor, window: int, seen: int = 3) -> tuple[Tensor, Tensor]:
    """The weights of each block, as above, from those of queries (B, h, n, S + 3 w); past the end the last row.

    ``seen``: blocks that each sees exactly.
    """
    length, width = of_queries.shape[2:]
    far, near = gather(of_queries, block_positions(length, window, of_queries.device)).split(
        [width - seen * window, seen * window], dim=-1
    )
    return far, near


def joint_softmax(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the last axes, shapes (..., p) and (..., q), taken together; zeros where all of it is -inf."""
    peak = torch.maximum(first.amax(dim=-1, keepdim=True), second.amax(dim=-1, keepdim=True)).detach()
    peak = peak.masked_fill(peak == HIDDEN, 0.0)
    powers = (first - peak).exp(), (second - peak).exp()
    total = powers[0].sum(dim=-1, keepdim=True) + powers[1].sum(dim=-1, keepdim=True)
    total = total.masked_fill(total == 0.0, 1.0)
    return powers[0] / total, powers[1] / total
