"""Window and memory on a CPU where no gradient is wanted: some blocks at a time, nothing masked that can be left out.

A document is cut at its last token, so padding costs nothing. Blocks with both neighbours see them through overlapping
views of the keys, without a bias; the first and the last ones see what there is. The queries of a chunk of blocks
see all slots in one call, with a bias that hides those in reach. Each chunk is merged by the two log-sum-exps while it
is in the cache.

Axes: n tokens of one document, S slots, h heads, d head dimension, w block, c blocks at a time.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from longform.functional.projection import Slots

CHUNK = 16  # blocks at a time, where the bias of their queries has less than
BIAS_SIZE = 2**22  # elements

_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class Part(NamedTuple):
    """Which queries, keys and values of a document are at hand: all positions are those of the document.

    ``length``: its tokens; ``start`` and ``stop``: those of the queries, from a block's first on; ``key_start``: of the
    first key and value, which reach from the block before the queries, or the document's start, to the block after.
    """

    length: int
    start: int
    stop: int
    key_start: int

    def blocks(self, window: int) -> range:
        """Of the queries."""
        return range(self.start // window, -(-self.stop // window))

    def queries(self, first: int, end: int, window: int) -> slice:
        """Where the queries of blocks ``first`` to ``end`` are."""
        return slice(first * window - self.start, min(end * window, self.length) - self.start)

    def keys(self, first: int, end: int, window: int) -> slice:
        """Where the keys of blocks ``first`` to ``end`` are, as far as there are such blocks."""
        return slice(max(0, first) * window - self.key_start, min(end * window, self.length) - self.key_start)


class Far(NamedTuple):
    """The slots of one document: ``key``, ``value`` (h, S, d), ``count`` (S) real, ``size`` tokens a slot.

    ``sinks`` of them stand for one leading token each; ``bias`` (h) or None and ``budget`` weigh them. ``of_tokens``:
    where ``size`` is 1, a slot is its token.
    """

    key: Tensor
    value: Tensor
    count: Tensor
    size: int
    sinks: int
    bias: Tensor | None
    budget: float | None
    of_tokens: bool = False


class DocumentAttention(Protocol):
    """The form of ``document_attention``."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        far: Far,
        out: Tensor,
        *,
        window: int,
        part: Part,
        carried: Any = None,
    ) -> Any:
        """Write into ``out``. ``carried``: what the call for the part of the document before this one returned."""


def far_of(
    document: int,
    length: int,
    memory_key: Tensor,
    memory_value: Tensor,
    slots: Slots,
    *,
    sinks: int,
    bias: Tensor | None,
    budget: float | None,
    of_tokens: bool,
) -> Far:
    """The slots of one document of ``length`` tokens, from the batch's memory_key, memory_value (B, h, S, d)."""
    size = int(slots.size[document]) if slots.uniform is None else slots.uniform
    used = slice(0, min(sinks + -(-length // size), memory_key.shape[2]))
    count = slots.count[document, used].to(torch.float64 if memory_key.dtype == torch.float64 else torch.float32)
    key, value = memory_key[document, :, used], memory_value[document, :, used]
    return Far(key, value, count, size, sinks, bias, budget, of_tokens)


def text_lengths(mask: Tensor | None, *, batch: int, length: int) -> list[int] | None:
    """Tokens of each row where all padding is on the right, else None; ``mask`` bool (B, n)."""
    if mask is None:
        return [length] * batch
    lengths = mask.sum(dim=1)
    if not torch.equal(mask, torch.arange(length, device=mask.device) < lengths[:, None]):
        return None
    return lengths.tolist()


def document_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    far: Far,
    out: Tensor,
    *,
    window: int,
    part: Part,
    carried: None = None,
) -> None:
    """Write the attention of one document's query (h, c, d) to its key, value (h, m, d) into ``out`` (c, h, d)."""
    last = -(-part.length // window) - 1
    for first, end in _chunks(part, window, far.count.shape[0]):
        rows = part.queries(first, end, window)
        near, near_lse = _near(query, key, value, part, first, end, window)
        if end - 1 < 2 and first > last - 2:  # these blocks reach from end to end
            out[rows] = near
            continue
        bias = far_rows(far, first, end, window, rows.stop - rows.start)
        found, far_lse = _attention(query[None, :, rows], far.key[None], far.value[None], attn_mask=bias)
        far_lse = far_lse[0].transpose(0, 1)
        if far.bias is not None:
            far_lse = far_lse + far.bias
        share = torch.sigmoid(far_lse - near_lse)
        out[rows] = torch.lerp(near.to(share.dtype), found[0].transpose(0, 1).to(share.dtype), share[..., None])


def _chunks(part: Part, window: int, slots: int) -> Iterator[tuple[int, int]]:
    """Runs of blocks, first and past the last: those without both neighbours alone, the others some at a time."""
    blocks, whole = part.blocks(window), part.length // window  # those before ``whole`` - 1 have a full right neighbour
    several = max(1, min(CHUNK, BIAS_SIZE // (window * slots)))
    first = blocks.start
    while first < blocks.stop:
        inner = 1 <= first < whole - 1
        end = min(first + several, whole - 1, blocks.stop) if inner else first + 1
        yield first, end
        first = end


def _near(
    query: Tensor, key: Tensor, value: Tensor, part: Part, first: int, end: int, window: int
) -> tuple[Tensor, Tensor]:
    """Blocks ``first`` to ``end`` and their neighbours: out (c w, h, d), log-sum-exp (c w, h)."""
    reach = part.keys(first - 1, end + 1, window)
    own, keys, values = query[:, part.queries(first, end, window)], key[:, reach], value[:, reach]
    if end - first == 1:
        out, lse = _attention(own[None], keys[None], values[None])
    else:
        blocks = own.unflatten(1, (-1, window)).transpose(0, 1)
        out, lse = _attention(blocks, *(x.unfold(1, 3 * window, window).permute(1, 0, 3, 2) for x in (keys, values)))
    return out.transpose(1, 2).flatten(0, 1), lse.transpose(1, 2).flatten(0, 1)


def far_rows(far: Far, first: int, end: int, window: int, rows: int) -> Tensor:
    """far_logits as a row for each query of the blocks: (1, 1, rows, S)."""
    return far_logits(far, first, end, window)[:, None].expand(-1, window, -1).flatten(0, 1)[None, None, :rows]


def far_logits(far: Far, first: int, end: int, window: int) -> Tensor:
    """What is added to the logits of slots for the queries of blocks ``first`` to ``end``: (c, S).

    As window.far_bias: log(count), hidden within reach and where empty, less where the budget is passed.
    """
    count = far.count
    index = torch.arange(count.shape[0], device=count.device)
    exact = index < far.sinks
    home = torch.where(exact, index, (index - far.sinks) * far.size) // window
    blocks = torch.arange(first, end, device=count.device)[:, None]
    seen = ((home - blocks).abs() > 1) & (count > 0)
    logits = slot_logits(far)
    if far.budget is not None:
        tokens = torch.where(seen & ~exact, count, 0.0).sum(dim=1, keepdim=True).clamp(min=1.0)
        logits = logits + torch.where(exact, 0.0, (far.budget / tokens).log().clamp(max=0.0))
    return torch.where(seen, logits, -torch.inf)


def slot_logits(far: Far) -> Tensor:
    """log(count) of each slot, -inf where it is empty: shape (S)."""
    return torch.where(far.count > 0, far.count.clamp(min=1.0).log(), -torch.inf)
