"""A document's window and memory by torch's fused attention: some blocks at a time, nothing masked that can be left
out.

Blocks with both neighbours see them through overlapping
views of the keys; the first and the last ones see what there is. The queries of a chunk of blocks see all slots in one
call, with a bias that hides those in reach. A bias by distance, where there is one, is added in both. Each chunk is
merged by the two log-sum-exps while it is in the cache; the share of the slots is rounded to the dtype of the output.

Axes: n tokens of one document, S slots, h heads, d head dimension, w block, c blocks at a time, g = 1 or h.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.positions.distances import beyond
from longform.functional.window.document import DocumentAttention, DocumentPart, FarSlots, slot_blocks
from longform.functional.window.formula import near_distances

CHUNK = 16  # blocks at a time, where the bias of their queries has less than
BIAS_SIZE = 2**22  # elements
SLOT_MULTIPLE = 16  # slots that fill vectors: with AMX attention to 257 took 2.4 ms, to 272, 15 of them hidden, 1.9

_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class SdpaDocument(DocumentAttention):
    """A document by torch's fused attention, on every CPU and in every dtype."""

    def __init__(self, far: FarSlots) -> None:
        spare = -far.key.shape[1] % SLOT_MULTIPLE
        if spare and far.key.dtype == torch.bfloat16:  # an empty slot is hidden
            key, value = (pad(x, (0, 0, 0, spare)) for x in (far.key, far.value))
            far = far._replace(key=key, value=value, count=pad(far.count, (0, spare)))
        super().__init__(far)
        self._near_bias: Tensor | None = None

    def __call__(self, part: DocumentPart, out: Tensor) -> None:
        far, last, blocks = self.far, part.all_blocks() - 1, part.blocks()
        rows_of_bias = part.window * (1 if far.distance_bias is None else far.key.shape[0])
        several = max(1, min(CHUNK, BIAS_SIZE // (rows_of_bias * far.count.shape[0]))) if last > 2 else 1
        if far.distance_bias is not None and self._near_bias is None:
            self._near_bias = near_distances(far.distance_bias, part.window)
        for first in range(blocks.start, blocks.stop, several):
            end = min(first + several, blocks.stop)
            rows = part.queries(first, end)
            near_lse = torch.cat([_near(part, *run, out, self._near_bias) for run in _runs(part, first, end)])
            if end - 1 < 2 and first > last - 2:  # these blocks reach from end to end
                continue
            logits = self.logits(part, first, end)[None]
            if far.distance_bias is not None:
                behind = slot_blocks(far, part.window) < torch.arange(first, end)[:, None]
                logits = logits + beyond(far.distance_bias, behind)
            bias = far_rows(logits, part.window, rows.stop - rows.start)
            found, far_lse = _attention(part.query[None, :, rows], far.key[None], far.value[None], attn_mask=bias)
            far_lse = far_lse[0].transpose(0, 1)
            if far.bias is not None:
                far_lse = far_lse + far.bias
            share = torch.sigmoid(far_lse - near_lse).to(out.dtype)[..., None]
            torch.lerp(out[rows], found[0].transpose(0, 1), share, out=out[rows])


def _runs(part: DocumentPart, first: int, end: int) -> list[tuple[int, int]]:
    """Blocks ``first`` to ``end`` cut into runs, first and past the last: those without both neighbours alone."""
    found, block = [], first
    stop = min(end, part.length // part.window - 1)  # before it right neighbours are whole
    while block < end:
        past = stop if 0 < block < stop else block + 1
        found.append((block, past))
        block = past
    return found


def _near(part: DocumentPart, first: int, end: int, out: Tensor, bias: Tensor | None) -> Tensor:
    """Blocks ``first`` to ``end`` and their neighbours: the context into ``out``, log-sum-exp (c w, h).

    ``bias`` (h, w, 3 w) or None: added to the logits of a block.
    """
    rows, reach, window = part.queries(first, end), part.keys(first - 1, end + 1), part.window
    own, keys, values = part.query[:, rows], part.key[:, reach], part.value[:, reach]
    if end - first == 1:
        missing = 0 if first else window  # the first block has no neighbour before it
        near = None if bias is None else bias[None, :, : own.shape[1], missing : missing + keys.shape[1]]
        found, lse = _attention(own[None], keys[None], values[None], attn_mask=near)
    else:
        near = None if bias is None else bias.expand(end - first, -1, -1, -1)
        blocks = own.unflatten(1, (-1, window)).transpose(0, 1)
        found, lse = _attention(blocks, _around(keys, window), _around(values, window), attn_mask=near)
    out[rows] = found.transpose(1, 2).flatten(0, 1)
    return lse.transpose(1, 2).flatten(0, 1)


def _around(x: Tensor, window: int) -> Tensor:
    """Keys or values (h, (c + 2) w, d) of c blocks and their neighbours as each block sees them: (c, h, 3 w, d)."""
    return x.unfold(1, 3 * window, window).permute(1, 0, 3, 2)


def far_rows(logits: Tensor, window: int, rows: int) -> Tensor:
    """far_logits (g, c, S) as a row for each query of the blocks: (1, g, rows, S)."""
    return logits[:, :, None].expand(-1, -1, window, -1).flatten(1, 2)[None, :, :rows]
