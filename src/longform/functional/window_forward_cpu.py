"""Window and memory on a CPU where no gradient is wanted: some blocks at a time, nothing masked that can be left out.

A document is cut at its last token, so padding costs nothing. Blocks with both neighbours see them through overlapping
views of the keys, without a bias; the first and the last ones see what there is. The queries of a chunk of blocks
see all slots in one call, with a bias that hides those in reach. Each chunk is merged by the two log-sum-exps while it
is in the cache.

Axes: n tokens of one document, S slots, h heads, d head dimension, w block, c blocks at a time.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from longform.functional.document import DocumentAttention, Far, Part, slot_logits

CHUNK = 16  # blocks at a time, where the bias of their queries has less than
BIAS_SIZE = 2**22  # elements

_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class FusedDocument(DocumentAttention):
    """By torch's fused attention."""

    def __call__(self, part: Part, out: Tensor) -> None:
        far, last = self.far, part.all_blocks() - 1
        for first, end in _chunks(part, far.count.shape[0]):
            rows = part.queries(first, end)
            near, near_lse = _near(part, first, end)
            if end - 1 < 2 and first > last - 2:  # these blocks reach from end to end
                out[rows] = near
                continue
            bias = far_rows(far, first, end, part.window, rows.stop - rows.start)
            found, far_lse = _attention(part.query[None, :, rows], far.key[None], far.value[None], attn_mask=bias)
            far_lse = far_lse[0].transpose(0, 1)
            if far.bias is not None:
                far_lse = far_lse + far.bias
            share = torch.sigmoid(far_lse - near_lse)
            out[rows] = torch.lerp(near.to(share.dtype), found[0].transpose(0, 1).to(share.dtype), share[..., None])


def _chunks(part: Part, slots: int) -> Iterator[tuple[int, int]]:
    """Runs of blocks, first and past the last: those without both neighbours alone, the others some at a time."""
    blocks, window = part.blocks(), part.window
    whole = part.length // window  # those before ``whole`` - 1 have a full right neighbour
    several = max(1, min(CHUNK, BIAS_SIZE // (window * slots)))
    first = blocks.start
    while first < blocks.stop:
        inner = 1 <= first < whole - 1
        end = min(first + several, whole - 1, blocks.stop) if inner else first + 1
        yield first, end
        first = end


def _near(part: Part, first: int, end: int) -> tuple[Tensor, Tensor]:
    """Blocks ``first`` to ``end`` and their neighbours: out (c w, h, d), log-sum-exp (c w, h)."""
    reach, window = part.keys(first - 1, end + 1), part.window
    own, keys, values = part.query[:, part.queries(first, end)], part.key[:, reach], part.value[:, reach]
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
