"""A teacher's hidden states on a text, also on one that is longer than it can read.

A long document is read through overlapping windows, each with special tokens of its own; every token takes the hidden
states of the window in which it is farthest from a cut.

Axes: B batch, n tokens, D hidden, L layers.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from longform.errors import ConfigurationError
from longform.pretrained.tokenizers import SpecialTokens
from longform_text.data.batching import padded

PARALLEL_TOKENS = 16_384  # of teacher windows that are read at once


def layer_states(model: nn.Module, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
    """Hidden states of an encoder after each of its layers, L x (B, n, D), for ids and mask (B, n)."""
    return tuple(model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[1:])


class Teacher:
    """A frozen encoder and how it reads texts of any length.

    ``limit``: tokens of one window, special tokens included; two begin three quarters of its text apart.
    """

    def __init__(self, model: nn.Module, special: SpecialTokens, *, limit: int, pad_id: int) -> None:
        content = limit - special.total
        if content < 1:
            raise ConfigurationError(f"teacher_length={limit} leaves no room beside {special.total} special tokens")
        self.model, self.special = model, special
        self.limit, self.stride, self.pad_id = limit, max(1, content * 3 // 4), pad_id

    @torch.no_grad()
    def read(self, input_ids: Tensor, attention_mask: Tensor | None, lengths: list[int]) -> tuple[Tensor, ...]:
        """Hidden states for input_ids long (B, n), whose texts have ``lengths`` tokens; no mask without padding."""
        with torch.autocast(input_ids.device.type, enabled=False):
            if max(lengths) <= self.limit:
                return layer_states(self.model, input_ids, attention_mask)
            windows, source = self._windows(input_ids.tolist(), lengths, input_ids.shape[1])
            return self._stitched(windows, torch.tensor(source, device=input_ids.device), input_ids.shape)

    def _stitched(self, windows: list[list[int]], index: Tensor, shape: torch.Size) -> tuple[Tensor, ...]:
        """Read the windows, some at a time; ``index`` is where each of the B * n tokens stands in them."""
        rows = max(1, PARALLEL_TOKENS // self.limit)
        parts = []
        for start in range(0, len(windows), rows):
            ids, mask = padded(windows[start : start + rows], value=self.pad_id, length=self.limit)
            ids, mask = ids.to(index.device), None if mask.all() else mask.to(index.device)
            parts.append(layer_states(self.model, ids, mask))
        layers = (torch.cat([layer.flatten(0, 1) for layer in layer_parts]) for layer_parts in zip(*parts, strict=True))
        return tuple(layer.index_select(0, index).view(*shape, -1) for layer in layers)

    def _windows(self, rows: list[list[int]], lengths: list[int], width: int) -> tuple[list[list[int]], list[int]]:
        """Token ids of all windows, and for each place in the (B * n) batch the flat place in (windows * limit)."""
        before, after = len(self.special.prefix), len(self.special.suffix)
        windows: list[list[int]] = []
        source: list[int] = []
        for row, length in zip(rows, lengths, strict=True):
            content = row[before : length - after]
            starts, borders = self.cut(len(content))
            first = len(windows)
            for start in starts:
                text = content[start : start + self.limit - self.special.total]
                windows.append(self.special.around(text))
            places = list(range(first * self.limit, first * self.limit + before))
            for number, start in enumerate(starts):
                base = (first + number) * self.limit + before - start
                places += range(base + borders[number], base + borders[number + 1])
            end = (len(windows) - 1) * self.limit + len(windows[-1])
            places += range(end - after, end)
            source += places + [0] * (width - length)
        return windows, source

    def cut(self, tokens: int) -> tuple[list[int], list[int]]:
        """Beginnings of the windows of a text, and the borders between the tokens that belong to each."""
        size = self.limit - self.special.total
        last = max(0, tokens - size)
        starts = [*range(0, last, self.stride), last]
        inner = [(one + other + size - 1) // 2 + 1 for one, other in pairwise(starts)]
        return starts, [0, *inner, tokens]
