"""A teacher's hidden states and predictions on a text, also on one that is longer than it can read.

A long document is read through overlapping windows, each with special tokens of its own; every token takes the hidden
states of the window in which it is farthest from a cut.

Axes: B batch, n tokens, D hidden, m chosen tokens, V vocabulary, L layers.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform.data.batching import padded
from longform.data.special_tokens import SpecialTokens
from longform.distributed.token_losses import own_places
from longform.errors import ConfigurationError

PARALLEL_TOKENS = 16_384  # of teacher windows that are read at once


class Encoded(NamedTuple):
    """``states``: hidden states after each layer, L x (B, n, D). ``logits``: (m, V) at chosen tokens, or None."""

    states: tuple[Tensor, ...]
    logits: Tensor | None


class EncoderTap:
    """Makes a Hugging Face encoder return Encoded, so that distributed wrappers see what the loss is made of.

    ``positions``: indices into the flattened (B * n) tokens whose logits are wanted; only then does a masked-language
    head run, and on these tokens alone. A model that shares texts out says what is of its part.
    """

    def __init__(self, model: Any, *, with_logits: bool) -> None:
        self.model, self.with_logits = model, with_logits
        self.positions: Tensor | None = None
        self._handles = [model.register_forward_hook(self._shape_output)]
        if with_logits:
            self._handles.append(model.base_model.register_forward_hook(self._gather))

    def _gather(self, _module: nn.Module, _inputs: Any, output: Any) -> Any:
        assert self.positions is not None
        here = own_places(self.model, self.positions).places
        output.last_hidden_state = output.last_hidden_state.flatten(0, 1).index_select(0, here)[None]
        return output

    def _shape_output(self, _module: nn.Module, _inputs: Any, output: Any) -> Encoded:
        return Encoded(tuple(output.hidden_states[1:]), output.logits[0] if self.with_logits else None)

    def remove(self) -> None:
        """Give the model its own outputs back."""
        for handle in self._handles:
            handle.remove()


class Teacher:
    """A frozen encoder and how it reads texts of any length.

    ``limit``: tokens of one window, special tokens included; two begin three quarters of its text apart.
    ``with_logits``: the model has a masked-language head whose predictions are wanted.
    """

    def __init__(
        self,
        model: nn.Module,
        special: SpecialTokens,
        *,
        limit: int,
        pad_id: int,
        with_logits: bool,
    ) -> None:
        content = limit - special.total
        if content < 1:
            raise ConfigurationError(f"teacher_length={limit} leaves no room beside {special.total} special tokens")
        self.model, self.special = model, special
        self.limit, self.stride, self.pad_id = limit, max(1, content * 3 // 4), pad_id
        self.tap = EncoderTap(model, with_logits=with_logits)

    @torch.no_grad()
    def read(
        self, input_ids: Tensor, attention_mask: Tensor | None, lengths: list[int], chosen: Tensor | None = None
    ) -> Encoded:
        """Hidden states for input_ids long (B, n), and logits at ``chosen``, long (m), places in the B * n tokens.

        ``lengths``: tokens of each text; ``attention_mask`` is None without padding.
        """
        with torch.autocast(input_ids.device.type, enabled=False):
            if max(lengths) <= self.limit:
                return self._ask(input_ids, attention_mask, chosen)
            windows, source = self._windows(input_ids.tolist(), lengths, input_ids.shape[1])
            index = torch.tensor(source, device=input_ids.device)
            return self._stitched(windows, index, chosen, input_ids.shape)

    def _ask(self, ids: Tensor, mask: Tensor | None, chosen: Tensor | None) -> Encoded:
        self.tap.positions = chosen
        return self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)

    def _stitched(self, windows: list[list[int]], index: Tensor, chosen: Tensor | None, shape: torch.Size) -> Encoded:
        """Read the windows, some at a time; ``index`` is where each of the B * n tokens stands in them."""
        wanted = None if chosen is None else index[chosen]
        rows = max(1, PARALLEL_TOKENS // self.limit)
        parts, logits = [], None
        for start in range(0, len(windows), rows):
            ids, mask = padded(windows[start : start + rows], value=self.pad_id, length=self.limit)
            ids, mask = ids.to(index.device), None if mask.all() else mask.to(index.device)
            if wanted is None:
                parts.append(self._ask(ids, mask, None).states)
                continue
            here = wanted // self.limit // rows == start // rows
            said = self._ask(ids, mask, wanted[here] - start * self.limit)
            parts.append(said.states)
            assert said.logits is not None
            logits = said.logits.new_empty(len(wanted), said.logits.shape[-1]) if logits is None else logits
            logits[here] = said.logits
        layers = (torch.cat([layer.flatten(0, 1) for layer in layer_parts]) for layer_parts in zip(*parts, strict=True))
        return Encoded(tuple(layer.index_select(0, index).view(*shape, -1) for layer in layers), logits)

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
