"""Attention of a part of a text to the whole of it.

The queries are those of the part. The slots are the sum of what all parts contribute to it, a message of k slots; a
window needs the hidden states of a block on either side too. Neither grows with the text.

Axes: B batch, n tokens of the whole texts, m tokens of the part, D hidden, h heads, d head dimension.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.distributed.collectives import neighbours, summed
from longform.distributed.parts import Part, SequenceGroup
from longform.distributed.shares import share_of_heads
from longform.errors import ConfigurationError
from longform.functional.execution import cached_in_forward
from longform.functional.masks import blank_padding
from longform.functional.slots import Exact, Slots, leading_tokens
from longform.functional.window import windowed_attention
from longform.layers.attention import LinformerAttention
from longform.layers.head_groups import Group, join_heads, joined_slots, of_heads
from longform.layers.self_attention import Shared


class ParallelAttention(LinformerAttention):
    """LinformerAttention in ``sequence_parallel``: its parameters under the same names.

    ``sequence`` knows the part of the present texts that is here, and the processes that have the others.
    """

    sequence: SequenceGroup

    def prepare(
        self, hidden_states: Tensor, mask: Tensor | None, *, name: str = "hidden_states"
    ) -> tuple[Tensor, Tensor | None]:
        """See SelfAttention; the mask of a part is known here."""
        part = self.sequence.part
        return super().prepare(hidden_states, mask if part is None else part.own_mask, name=name)

    def convolve(self, x: Tensor, mask: Tensor | None, grid: tuple[int, ...] | None = None) -> Tensor:
        """The part's hidden states (B, m, D) after a short convolution, which reaches into both neighbours' tokens."""
        part, convolution = self.sequence.part, self.convolution
        if part is None or convolution is None:
            return super().convolve(x, mask)
        reach = convolution.reach
        ends = part.before(reach), part.after(reach)
        around = neighbours(x, self.sequence.group, window=reach, before=ends[0], after=ends[1])
        out = convolution(torch.cat([around.before, x, around.after], dim=1))
        return blank_padding(out[:, ends[0] : ends[0] + x.shape[1]], mask)

    def streams(self, length: int) -> bool:
        """Whether a part may be attended some tokens at a time: not with a window, which reads neighbours."""
        return self.window is None and len(self.head_groups) == 1

    def reaches_all(self, length: int, *, output_attentions: bool = False) -> bool:
        """See LinformerAttention; never of a part, however short it is."""
        return self.sequence.part is None and super().reaches_all(length, output_attentions=output_attentions)

    def shorten(self, x: Tensor, mask: Tensor | None, shared: Shared) -> Slots:
        """Slots of the whole texts, from x (B, m, D) of the part."""
        part = self.sequence.part
        if part is None:
            return super().shorten(x, mask, shared)
        assert shared.rotation is None
        key, value = (each.transpose(1, 2) for each in self.keys_and_values(x, part.own_mask))
        if len(self.head_groups) > 1:
            groups = self.grouped_heads()
        else:
            groups = [(list(range(self.num_heads)), self.projection_for(shared))]
        slots = self._whole_slots(key, value, x, groups, shared)
        return slots[0] if len(slots) == 1 else joined_slots(slots, self.head_groups)

    def attend_near_and_far(
        self, query: Tensor, x: Tensor, mask: Tensor | None, shared: Shared, order: Any, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """See LinformerAttention: near tokens exactly, far ones in slots of the whole text."""
        part = self.sequence.part
        if part is None:
            return super().attend_near_and_far(query, x, mask, shared, order, **options)
        return self._windowed_part(query, x, self.grouped_heads(), part, shared), None

    def exact_tokens(self, mask: Tensor | None, x: Tensor, shared: Shared) -> Exact | None:
        """See LinformerAttention; those of the whole texts, of which x (B, m, D) has a part."""
        part = self.sequence.part
        if part is None:
            return super().exact_tokens(mask, x, shared)
        if shared.global_attention_mask is not None:
            raise ConfigurationError("global_attention_mask is not served in sequence_parallel: leave it out")
        where: Any = {"batch": len(x), "length": part.length, "device": x.device}
        return cached_in_forward(leading_tokens, part.mask, sinks=self.sinks, **where) if self.sinks else None

    def _whole_slots(self, key: Tensor, value: Tensor, x: Tensor, groups: list[Group], shared: Shared) -> list[Slots]:
        """The slots of whole texts, of each of ``groups``, from keys and values (B, m, h, d) of x (B, m, D): one
        message for all heads.
        """
        part = cast(Part, self.sequence.part)
        exact = self.exact_tokens(part.own_mask, x, shared)
        shares = [
            share_of_heads(projection, *(of_heads(side, heads, 2) for side in (key, value)), x, part, exact)
            for heads, projection in groups
        ]
        found = iter(summed([x for share in shares for x in share[:2]], self.sequence.group))
        return [share._replace(key=next(found), value=next(found)) for share in shares]

    def _windowed_part(self, query: Tensor, hidden: Tensor, groups: list[Group], part: Part, shared: Shared) -> Tensor:
        """The context (B, h, m, d) of hidden (B, m, D): near tokens exactly, far ones in slots of the whole text.

        The block before the part and the one after it are attended too, with queries of zeros, and left out.
        """
        window = self.window
        assert window is not None
        ends = part.before(window), part.after(window)
        around = neighbours(hidden, self.sequence.group, window=window, before=ends[0], after=ends[1])
        near = torch.cat([around.before, hidden, around.after], dim=1)
        mask = None if part.mask is None else part.mask[:, part.start - ends[0] : part.stop + ends[1]]
        key, value = (each.transpose(1, 2) for each in self.keys_and_values(near, mask))
        own = slice(ends[0], ends[0] + hidden.shape[1])
        whole = self._whole_slots(key[:, own], value[:, own], hidden, groups, shared)
        query = pad(query, (0, 0, *ends))
        contexts = []
        for (heads, _), slots in zip(groups, whole, strict=True):
            sides = (of_heads(x, heads, 2).transpose(1, 2) for x in (key, value))
            attended, _ = windowed_attention(
                of_heads(query, heads, 1),
                *sides,
                lambda slots=slots: slots,
                window=window,
                memory_bias=_of_heads(self.memory_bias, heads),
                distance_bias=_of_heads(shared.distance_bias, heads),
                memory_budget=self.memory_budget,
                mask=mask,
                dropout=self.dropout_rate,
                first_block=(part.start - ends[0]) // window,
            )
            contexts.append(attended)
        return join_heads(contexts, [heads for heads, _ in groups])[:, :, own]


def _of_heads(x: Tensor | None, heads: list[int]) -> Tensor | None:
    return None if x is None else of_heads(x, heads, 0)
