"""Near tokens and far slots of a document by torch's fused attention: some blocks at a time, no masks without need.

Blocks with both neighbours see them through overlapping views of the keys; the first and the last ones see what there
is. The queries of a chunk of blocks see all slots in one call, with a bias that hides those in reach; with selection
each block has a call for itself, since what is selected differs from block to block, and another for the tokens of
selected slots. A bias by distance, where there is one, is added everywhere. Each chunk is merged by the log-sum-exps
while it is in the cache; the share of what is merged is rounded to the dtype of the output.

Axes: n tokens of one document, S slots, h heads, d head dimension, w block, c blocks at a time, t tokens of selected
slots, g = 1 or h.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.positions.distances import beyond
from longform.functional.window.document import DocumentAttention, DocumentPart, FarSlots, slot_blocks
from longform.functional.window.formula import HIDDEN, near_distances
from longform.functional.window.selection import selected_distances

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
        self._biases = 1 if far.distance_bias is None else far.key.shape[0]  # of a query and a slot

    def __call__(self, part: DocumentPart, out: Tensor) -> None:
        far, last, blocks = self.far, part.all_blocks() - 1, part.blocks()
        biases = self._biases * part.window * far.count.shape[0]  # of a block
        several = max(1, min(CHUNK, BIAS_SIZE // biases)) if last > 2 else 1
        if far.distance_bias is not None and self._near_bias is None:
            self._near_bias = near_distances(far.distance_bias, part.window)
        selected = self.select(part) if far.selected else None
        for first in range(blocks.start, blocks.stop, several):
            end = min(first + several, blocks.stop)
            rows = part.queries(first, end)
            lse = torch.cat([_near(part, *run, out, self._near_bias) for run in _runs(part, first, end)])
            if end - 1 < 2 and first > last - 2:  # these blocks reach from end to end
                continue
            if selected is None:
                logits = self.logits(part, first, end)[None]
                if far.distance_bias is not None:
                    logits = self._with_distances(logits, part, first)
                bias = logits[:, :, None].expand(-1, -1, part.window, -1).flatten(1, 2)  # a row for each query
                bias = bias[None, :, : rows.stop - rows.start]
                found, far_lse = _attention(part.query[None, :, rows], far.key[None], far.value[None], attn_mask=bias)
                found, far_lse = found[0].transpose(0, 1), far_lse[0].transpose(0, 1)
            else:
                some = slice(first - blocks.start, end - blocks.start)
                found, token_lse = self._in_tokens(part, selected.tokens[0, :, some], selected.seen[0, :, some], first)
                share = torch.sigmoid(token_lse - lse).to(out.dtype)[..., None]
                torch.lerp(out[rows], found, share, out=out[rows])
                lse = torch.logaddexp(lse, token_lse)
                found, far_lse = self._in_slots_left(part, selected.far[0, :, some], first)
            if far.bias is not None:
                far_lse = far_lse + far.bias
            share = torch.sigmoid(far_lse - lse).to(out.dtype)[..., None]
            torch.lerp(out[rows], found, share, out=out[rows])

    def _with_distances(self, logits: Tensor, part: DocumentPart, first: int) -> Tensor:
        """``logits`` (g, c, S) of slots for the blocks from ``first`` on, and the bias by distance: (h, c, S)."""
        assert self.far.distance_bias is not None
        blocks = torch.arange(first, first + logits.shape[1])[:, None]
        return logits + beyond(self.far.distance_bias, slot_blocks(self.far, part.window) < blocks)

    def _in_slots_left(self, part: DocumentPart, logits: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Blocks from ``first`` on in the slots, with ``logits`` (h, c, S) of each block; see _in_keys_of_blocks."""
        if self.far.distance_bias is not None:
            logits = self._with_distances(logits, part, first)
        blocks = logits.shape[1], -1, -1, -1
        return _in_keys_of_blocks(part, first, self.far.key.expand(blocks), self.far.value.expand(blocks), logits)

    def _in_tokens(self, part: DocumentPart, tokens: Tensor, seen: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Blocks from ``first`` on in selected ``tokens``, where ``seen``, (h, c, t) each; see _in_keys_of_blocks."""
        heads, distances = part.key.shape[0], self.far.distance_bias
        bias = torch.zeros(seen.shape, dtype=self.far.count.dtype).masked_fill(~seen, HIDDEN)
        if distances is not None:
            bias = bias + selected_distances(distances, tokens[None], part.window, first)[0]
        index = (tokens * heads + torch.arange(heads)[:, None, None]).transpose(0, 1)
        shape, rows = (*index.shape, -1), index.flatten()
        # Indexing by a table of rows copies number by number: 15 % of an encoder's time instead of 5.
        key = part.key.transpose(0, 1).flatten(0, 1).index_select(0, rows).view(shape)
        value = part.value.transpose(0, 1).flatten(0, 1).index_select(0, rows).view(shape)
        return _in_keys_of_blocks(part, first, key, value, bias)


def _in_keys_of_blocks(
    part: DocumentPart, first: int, key: Tensor, value: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Blocks from ``first`` on in the keys and values (c, h, m, d) of each with ``bias`` (h, c, m): the context
    (c w, h, d) and log-sum-exp (c w, h), which is -inf where a block sees none.
    """
    rows, window = part.queries(first, first + len(key)), part.window
    query = pad(part.query[:, rows], (0, 0, 0, len(key) * window - rows.stop + rows.start))
    blocks, spread = query.unflatten(1, (-1, window)).transpose(0, 1), bias.transpose(0, 1)[:, :, None]
    found, lse = _attention(blocks, key, value, attn_mask=spread.expand(-1, -1, window, -1))
    lse = lse.masked_fill((spread == HIDDEN).all(dim=-1), HIDDEN)
    count = rows.stop - rows.start
    return found.transpose(1, 2).flatten(0, 1)[:count], lse.transpose(1, 2).flatten(0, 1)[:count]


def _runs(part: DocumentPart, first: int, end: int) -> list[tuple[int, int]]:
    """Blocks ``first`` to ``end`` cut into runs, (first, past the last): a block that lacks a neighbour is one."""
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
