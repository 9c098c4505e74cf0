"""Linformer self-attention as a layer for any network.

Axes: B batch, n tokens, D hidden, h heads, d head dimension.
"""

from functools import partial
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from longform.choices import POOLED
from longform.errors import ConfigurationError, InputError
from longform.functional.attention import slot_attention, weighted_slots
from longform.functional.masks import blank_padding, checked_mask
from longform.functional.slots import Memory
from longform.functional.window import weighted_window, windowed_attention
from longform.layers.geometry import check_attention
from longform.layers.linear import Linear, apply_linear, is_affine
from longform.layers.memory import (
    by_head,
    join_heads,
    join_weighted,
    memory_of_heads,
    memory_of_hidden,
    of_heads,
    weights_of_heads,
)
from longform.layers.sequence_projection import SequenceProjection, make_projection


class LinformerAttention(nn.Module):
    """Multi-head self-attention in O(n k): softmax(Q (E K)ᵀ / sqrt(d)) (F V) (paper §4, equation 7).

    ``hidden_size`` D and ``num_heads`` h; ``max_length`` N, the most tokens; ``projected_length`` k, or one k a head
    (a list of h; sharing "none"). ``projection``: "linear" (learned E, F), "mean", "max", "convolution", "random".
    ``projection_sharing`` (or ``sharing``): "none" (an E and F a head), "headwise" (one each for all heads),
    "key_value" (E = F), "layerwise" (E = F given to ``forward`` by their owner, see ``shared_projection``).
    ``attention_window``: None for the paper's attention, or tokens seen exactly on each side, in blocks of that size,
    beside the slots of the rest; ``memory_budget``: how many tokens all slots together stand for at most.
    ``sink_tokens``: leading tokens that every query sees exactly, beside the k slots (with a dense E: rows of E that
    start as one token each). ``dropout`` on attention weights.

    Weights that ``forward`` returns are (B, h, n, k); with a window w (B, h, n, S + 3 w), sinks and slots, then the
    query's block with both neighbours; (B, h, n, n) where the window reaches across ``max_length``.
    Raises ConfigurationError for options that do not go together.
    """

    adds_residual = True  # ``forward`` takes ``residual``

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        max_length: int,
        projected_length: int | list[int] | tuple[int, ...] = 128,
        projection: str = "linear",
        projection_sharing: str = "headwise",
        attention_window: int | None = None,
        memory_budget: float | None = None,
        sink_tokens: int = 0,
        projection_init: str = "normal",
        freeze_projection: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        sharing: str | None = None,
    ) -> None:
        super().__init__()
        sharing = projection_sharing if sharing is None else sharing
        lengths = (projected_length,) * num_heads if isinstance(projected_length, int) else tuple(projected_length)
        check_attention(
            hidden_size=hidden_size, num_heads=num_heads, max_length=max_length, head_slots=lengths,
            projection=projection, sharing=sharing, projection_init=projection_init,
            attention_window=attention_window, memory_budget=memory_budget, sink_tokens=sink_tokens,
        )  # fmt: skip
        self.sinks = sink_tokens if projection in POOLED else 0
        self.hidden_size, self.num_heads, self.max_length = hidden_size, num_heads, max_length
        self.window, self.memory_budget, self.dropout = attention_window, memory_budget, dropout
        self.projection_sharing = sharing
        self.query, self.key, self.value, self.output = (Linear(hidden_size, hidden_size, bias=bias) for _ in range(4))
        # Blocks of w with both neighbours reach across the whole text: full attention, and no memory to own.
        self.covers_all = attention_window is not None and 2 * attention_window >= max_length
        self.head_groups = [
            [head for head, slots in enumerate(lengths) if slots == distinct] for distinct in dict.fromkeys(lengths)
        ]
        self.groups = nn.ModuleList()
        if sharing != "layerwise" and not self.covers_all:
            self.groups.extend(
                make_projection(
                    projection, heads=len(heads), head_dim=hidden_size // num_heads, max_length=max_length,
                    slots=lengths[heads[0]], sharing=sharing, initialisation=projection_init, frozen=freeze_projection,
                    sinks=sink_tokens,
                )
                for heads in self.head_groups
            )  # fmt: skip
        windowed = attention_window is not None and not self.covers_all
        self.memory_bias = nn.Parameter(torch.zeros(num_heads)) if windowed else None

    @overload
    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = ...,
        *,
        shared_projection: SequenceProjection | None = ...,
        residual: Tensor | None = ...,
        readers: Tensor | None = ...,
        output_attentions: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = ...,
        *,
        shared_projection: SequenceProjection | None = ...,
        residual: Tensor | None = ...,
        readers: Tensor | None = ...,
        output_attentions: bool,
    ) -> Tensor | tuple[Tensor, Tensor]: ...

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        shared_projection: SequenceProjection | None = None,
        residual: Tensor | None = None,
        readers: Tensor | None = None,
        output_attentions: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend: hidden_states (B, n, D) of n <= max_length tokens; ``attention_mask`` (B, n), 1 text and 0 padding.

        ``shared_projection``: with sharing "layerwise". ``residual`` (B, n, D) is added. ``readers`` bool (B, n): the
        text and tokens that read it without being read, in texts that every query sees as a whole. Returns (B, n, D),
        and with ``output_attentions`` the weights. Raises InputError on a longer input or a mask of another shape.
        """
        hidden, mask = self.checked(hidden_states, attention_mask)
        query = self.queries(hidden if readers is None else self.checked(hidden_states, readers)[0])
        whole = self.window is None or self.reaches_all(hidden.shape[1], output_attentions=output_attentions)
        if readers is not None and not whole:
            raise InputError(
                f"tokens that are not read (query_expansion with attend=False) need a text of at most 2 x "
                f"attention_window={self.window} tokens, not n={hidden.shape[1]}: shorten the query, or convert with a "
                "wider window"
            )
        if whole:
            memories = self.memories(hidden, mask, shared_projection)
            context, weights = self.attended(query, memories, output_attentions=output_attentions)
        else:
            groups = self._groups(shared_projection)
            context, weights = self._windowed(query, hidden, mask, groups, output_attentions)
        out = apply_linear(self.output, context.transpose(1, 2).flatten(2), residual=residual)
        return (out, weights) if weights is not None else out

    def checked(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Hidden states (B, n, D) with padding blanked, rounded once where products under autocast would, and a bool
        mask.

        Raises InputError on a longer input or a mask of another shape.
        """
        batch, length, _ = hidden_states.shape
        if length > self.max_length:
            raise InputError(f"the input has n={length} tokens, this layer takes at most max_length={self.max_length}")
        if mask is not None and (mask.dtype != torch.bool or mask.shape != (batch, length)):
            mask = checked_mask(mask, batch=batch, length=length)
        hidden, device = blank_padding(hidden_states, mask), hidden_states.device.type
        if hidden.dtype == torch.float32 and torch.is_autocast_enabled(device) and self._is_affine():
            hidden = hidden.to(torch.get_autocast_dtype(device))
        return hidden, mask

    def _is_affine(self) -> bool:
        """Whether hidden states meet products alone: the layers are their weights, and no adapter beside them."""
        return all(is_affine(layer) for layer in (self.query, self.key, self.value))

    def reaches_all(self, length: int, *, output_attentions: bool = False) -> bool:
        """Whether every query sees every token of ``length`` exactly, so that there is no memory."""
        if self.covers_all:
            return True
        if self.window is None or output_attentions or torch.compiler.is_compiling():
            return False
        return length <= 2 * self.window and not (self.training and _in_process_group())

    def _groups(self, shared: SequenceProjection | None) -> list[tuple[list[int], SequenceProjection]]:
        """Heads that have one k, and their projection. Raises ConfigurationError where ``shared`` is missing or too
        much.
        """
        if (shared is not None) != (self.projection_sharing == "layerwise"):
            raise ConfigurationError(
                "sharing='layerwise' needs the projection of all layers: forward(..., shared_projection="
                "make_projection(...))"
                if shared is None
                else f"shared_projection is for sharing='layerwise', this layer has sharing={self.projection_sharing!r}"
            )
        owned = list(self.groups) if shared is None else [shared]
        return list(zip(self.head_groups, owned, strict=True))  # ty: ignore[invalid-explicit-return]  a list of modules

    def queries(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, h, n, d)."""
        return by_head(self.query(hidden), self.num_heads).transpose(1, 2)

    def keys_and_values(self, hidden: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of every token, (B, n, h, d) each, padding blanked."""
        key, value = (blank_padding(layer(hidden), mask) for layer in (self.key, self.value))
        return by_head(key, self.num_heads), by_head(value, self.num_heads)

    def memories(
        self, hidden: Tensor, mask: Tensor | None, shared_projection: SequenceProjection | None = None
    ) -> list[tuple[list[int], Memory]]:
        """Heads and what they attend to for hidden (B, n, D): with a window all tokens, which are in reach then, else
        slots.
        """
        if self.window is None:
            return self.slot_memories(hidden, mask, shared_projection)
        keys, values = (by_head(layer(hidden), self.num_heads).transpose(1, 2) for layer in (self.key, self.value))
        return [(list(range(self.num_heads)), Memory(keys, values, None if mask is None else mask[:, None], None))]

    def slot_memories(
        self, hidden: Tensor, mask: Tensor | None, shared_projection: SequenceProjection | None
    ) -> list[tuple[list[int], Memory]]:
        """Heads of one k and their slots, from hidden (B, n, D), or from full keys and values where layers are
        adapters.
        """
        groups = self._groups(shared_projection)
        if is_affine(self.key) and is_affine(self.value):
            return [(heads, self._slots_of(hidden, mask, heads, projection)) for heads, projection in groups]
        full = self.keys_and_values(hidden, mask)
        return [
            (heads, memory_of_heads(*(of_heads(x, heads, 2) for x in full), mask, projection, self.sinks))
            for heads, projection in groups
        ]

    def _slots_of(
        self, hidden: Tensor, mask: Tensor | None, heads: list[int], projection: SequenceProjection
    ) -> Memory:
        sides = (weights_of_heads(layer, heads, self.num_heads, hidden) for layer in (self.key, self.value))
        return memory_of_hidden(hidden, mask, projection, *sides, len(heads), self.sinks)

    def attended(
        self, query: Tensor, memories: list[tuple[list[int], Memory]], *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The context of query (B, h, n, d) in the ``memories`` of its heads: (B, h, n, d), and weights or None."""
        attend = weighted_slots if output_attentions else slot_attention
        parts = [
            attend(
                of_heads(query, heads, 1), memory.key, memory.value, slot_mask=memory.usable,
                dropout=self.dropout if self.training else 0.0,
            )
            for heads, memory in memories
        ]  # fmt: skip
        return _joined(parts, [heads for heads, _ in memories], output_attentions)

    def _windowed(
        self,
        query: Tensor,
        hidden: Tensor,
        mask: Tensor | None,
        groups: list[tuple[list[int], SequenceProjection]],
        output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The context of query (B, h, n, d), near tokens exactly, far ones in slots: (B, h, n, d), and weights or
        None.
        """
        assert self.window is not None
        attend = weighted_window if output_attentions else windowed_attention
        full, parts = self.keys_and_values(hidden, mask), []
        for heads, projection in groups:
            key, value = (of_heads(x, heads, 2) for x in full)
            # A compiler is not asked about the length: that would tie its graph to some lengths.
            of_tokens = not torch.compiler.is_compiling() and projection.gives_tokens(hidden.shape[1])
            parts.append(attend(
                of_heads(query, heads, 1), key.transpose(1, 2), value.transpose(1, 2),
                partial(memory_of_heads, key, value, mask, projection, self.sinks), window=self.window,
                memory_bias=None if self.memory_bias is None else of_heads(self.memory_bias, heads, 0),
                memory_budget=self.memory_budget, sinks=self.sinks, mask=mask,
                dropout=self.dropout if self.training else 0.0, slots_are_tokens=of_tokens,
            ))  # fmt: skip
        return _joined(parts, [heads for heads, _ in groups], output_attentions)


def _joined(parts: list[Any], groups: list[list[int]], output_attentions: bool) -> tuple[Tensor, Tensor | None]:
    if output_attentions:
        return join_weighted(parts, groups)
    return join_heads([context for context, _ in parts], groups), None


def _in_process_group() -> bool:
    """Data-parallel training wants a gradient of every parameter, the memory's too, from every batch."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
