"""Selection: the far slots that a block of queries looks at most are seen token by token.

For each head and each block the mean query of the block's text is multiplied with the keys of the far slots, and the m
slots with the largest products are selected. They are left out, and their tokens are seen exactly, in the one softmax
that near tokens and the other slots share: every token is still counted once. With all far slots selected it is full
attention. The keys of the slots choose: there are no further weights and no second pass over the text; native sparse
attention (arXiv 2502.11089) and MRA (arXiv 2207.10284) choose blocks of keys by means too. No gradient passes through
the choice, and of equal products that of the earlier slot is taken.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b blocks, m selected slots, c tokens a slot,
t = m c.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from longform.functional.execution import unrounded
from longform.functional.slots import Runs, in_runs
from longform.functional.window.formula import HIDDEN, Blocks


class Selected(NamedTuple):
    """``far`` (B, h, b, S): bias on the logits of slots, -inf for those that are selected too; ``tokens`` long
    (B, h, b, t): positions of the tokens in selected slots; ``seen`` bool (B, h, b, t): whether there is such a token;
    ``slots`` long (B, h, b, m): those that are selected, -1 where there are fewer.
    """

    far: Tensor
    tokens: Tensor
    seen: Tensor
    slots: Tensor


def block_sums(query: Tensor, mask: Tensor | None, window: int) -> Tensor:
    """Sum of each block's queries (B, h, n, d) over its text, in at least float32: (B, h, b, d).

    ``mask`` bool (B, n), or None. In place of the mean, which is larger or smaller for all slots alike.
    """
    tokens = query.transpose(1, 2)
    if mask is not None:
        tokens = torch.where(mask[..., None, None], tokens, 0.0)
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    sums = in_runs(tokens.flatten(2), window, 0.0).sum(dim=2, dtype=wide)
    return sums.unflatten(2, tokens.shape[2:]).transpose(1, 2)


def largest(scores: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Indices of the ``most`` largest ``scores`` (..., S), the earlier of equal ones first, long (..., m), -1 where
    there are fewer above -inf; and the scores with -inf in their place.
    """
    if not torch.compiler.is_compiling():  # there S may be a symbol
        most = min(most, scores.shape[-1])
    indices = []
    for _ in range(most):  # sorting all, as a stable order asks for, took ten times as long
        index = scores.argmax(dim=-1, keepdim=True)
        indices.append(torch.where(scores.gather(-1, index) > HIDDEN, index, -1))
        scores = scores.scatter(-1, index, HIDDEN)
    return torch.cat(indices, dim=-1), scores


@torch.no_grad()
def select(
    sums: Tensor, slot_key: Tensor, far: Tensor, runs: Runs, counted: Tensor | None, *, length: int,
    budget: float | None, most: int,
) -> Selected:  # fmt: skip
    """The choice of each block with ``sums`` (B, h, b, d) of queries among slots with keys (B, h, S, d).

    ``far`` (B, 1, b, S): bias on the logits of the slots, which stand for ``runs``, see formula.far_bias; ``counted``
    bool (B, n) or None: which of ``length`` tokens are in these, since exact tokens are never selected; ``budget``: see
    formula.far_parts, over the slots that are left; ``most``: m.
    """
    may = (torch.arange(far.shape[-1], device=far.device) >= runs.singles) & (far > HIDDEN)
    with unrounded(sums):  # rounded scores are often equal
        scores = sums @ slot_key.to(sums.dtype).transpose(-1, -2)
    chosen, rest = largest(scores.masked_fill(~may, HIDDEN), most)
    left = may & (rest > HIDDEN)
    bias = far.masked_fill(may & ~left, HIDDEN)
    if budget is not None:
        count = runs.count.to(far.dtype)[:, None, None]
        tokens = torch.where(left, count, 0.0).sum(dim=-1, keepdim=True).clamp(min=1.0)
        bias = torch.where(left, count.log() + (budget / tokens).log().clamp(max=0.0), bias)
    span = runs.longest if runs.uniform is None else runs.uniform
    tokens, seen = tokens_of(chosen, runs.size, span, counted, length=length, singles=runs.singles)
    return Selected(bias, tokens, seen, chosen)


def tokens_of(
    chosen: Tensor, size: Tensor, span: int, counted: Tensor | None, *, length: int, singles: int
) -> tuple[Tensor, Tensor]:
    """``tokens`` and ``seen`` of Selected for its slots ``chosen``, of ``size`` long (B,) tokens, at most ``span``.

    ``singles``: slots of exact tokens, in front of the others.
    """
    places, sizes = torch.arange(span, device=chosen.device), size[:, None, None, None, None]
    tokens = (chosen - singles)[..., None] * sizes + places
    seen = (places < sizes) & (tokens >= 0) & (tokens < length)
    tokens, seen = tokens.clamp(0, length - 1).flatten(-2), seen.flatten(-2)
    if counted is not None:
        seen = seen & counted[torch.arange(counted.shape[0], device=counted.device)[:, None, None, None], tokens]
    return tokens, seen


def opened(blocks: Blocks, selected: Selected) -> Blocks:
    """``blocks`` that see the tokens of selected slots beside their neighbours."""
    near = blocks.near.expand(*selected.tokens.shape[:3], -1)
    bias = torch.zeros_like(selected.seen, dtype=near.dtype).masked_fill(~selected.seen, HIDDEN)
    return blocks._replace(near=torch.cat([near, bias], dim=-1), far=selected.far, tokens=selected.tokens)


def selected_distances(bias: Tensor, tokens: Tensor, window: int, first: int = 0) -> Tensor:
    """Addends by the ``bias`` by distance (h, 2 r + 1) for selected ``tokens`` (B, h, b, t), all beyond r: likewise.

    ``first``: the first of the b blocks.
    """
    blocks = torch.arange(first, first + tokens.shape[2], device=tokens.device)[:, None]
    return torch.where(tokens // window < blocks, bias[:, :1, None], bias[:, -1:, None])


def opened_distances(near: Tensor, bias: Tensor, tokens: Tensor, window: int) -> Tensor:
    """Addends by the ``bias`` by distance for all that a block sees exactly: (B, h, b, w, 3 w + t), of those for its
    neighbours, ``near`` (1, h, 1, w, 3 w), and of selected ``tokens``.
    """
    more = selected_distances(bias, tokens, window)[..., None, :]
    shape = *more.shape[:3], window, -1
    return torch.cat([near.expand(shape), more.expand(shape)], dim=-1)


def by_slot(of_blocks: tuple[Tensor, Tensor], selected: Selected, runs: Runs) -> tuple[Tensor, Tensor]:
    """Weights of each block, of slots (B, h, b, w, S) and of tokens (B, h, b, w, 3 w + t), with those of the tokens in
    selected slots added to their slots: (B, h, b, w, S) and (B, h, b, w, 3 w).
    """
    far, (near, of_tokens), home = _taken_apart(of_blocks, selected, runs)
    return far.scatter_add(-1, home, of_tokens), near


def by_token(
    of_slots: tuple[Tensor, Tensor], of_blocks: tuple[Tensor, Tensor], selected: Selected, runs: Runs
) -> tuple[Tensor, Tensor]:
    """``by_slot`` undone: weights of slots (B, h, b, w, S) and of tokens (B, h, b, w, 3 w + t), of ``of_slots`` that it
    gave for ``of_blocks``. A selected slot's weight is shared out among its tokens as it was there.
    """
    far, (_, of_tokens), home = _taken_apart(of_blocks, selected, runs)
    whole = far.scatter_add(-1, home, of_tokens).gather(-1, home)
    shares = of_tokens / torch.where(whole > 0, whole, 1.0)
    left = of_slots[0].masked_fill((selected.far == HIDDEN)[..., None, :], 0.0)
    return left, torch.cat([of_slots[1], of_slots[0].gather(-1, home) * shares], dim=-1)


def _taken_apart(
    of_blocks: tuple[Tensor, Tensor], selected: Selected, runs: Runs
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """Weights of slots, of neighbours and of the tokens in selected slots, and the slots of these, (B, h, b, w, t)."""
    far, near = of_blocks
    near, of_tokens = near.split([near.shape[-1] - selected.tokens.shape[-1], selected.tokens.shape[-1]], dim=-1)
    home = (selected.tokens // runs.size[:, None, None, None] + runs.singles).clamp(max=far.shape[-1] - 1)
    return far, (near, of_tokens), home[..., None, :].expand(of_tokens.shape)
