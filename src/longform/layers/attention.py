"""Linformer self-attention as a layer for any network.

Axes: B batch, n tokens, D hidden, h heads, d head dimension.
"""

from collections.abc import Iterator
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from longform.errors import ConfigurationError, InputError
from longform.functional.attention import compressed_attention
from longform.functional.linear import fused_linear
from longform.functional.masks import blank_padding, checked_mask, text_lengths
from longform.functional.sinks import first_tokens, join_slots, sink_counts
from longform.functional.slots import Slots
from longform.functional.window import single_token_attention, windowed_attention
from longform.layers.geometry import POOLED, check_attention
from longform.layers.linear import apply_linear, is_affine, is_plain
from longform.layers.packed_linear import PackedLinear
from longform.layers.row_chunks import OutputPart, assembled, can_stream, rows_of_each
from longform.layers.sequence_projection import (
    ConvolutionProjection,
    MeanProjection,
    Memory,
    SequenceProjection,
    Weights,
    make_projection,
)
from longform.layers.streaming import WindowedLayer, windowed_parts


class LinformerAttention(nn.Module):
    """Multi-head self-attention in O(n k): softmax(Q (E K)ᵀ / sqrt(d)) (F V) (paper §4, equation 7).

    ``hidden_size`` D and ``num_heads`` h; ``max_length`` N, the most tokens; ``projected_length`` k, or one k a head
    (a list of h; sharing "none"). ``projection``: "linear" (learned E, F), "mean", "max", "convolution", "random".
    ``sharing``: "none" (an E and F a head), "headwise" (one each for all heads), "key_value" (E = F), "layerwise"
    (E = F given to ``forward`` by their owner, see ``shared_projection``). ``attention_window``: None for the
    paper's attention, or tokens seen exactly on each side, in blocks of that size, beside the slots of the rest;
    ``memory_budget``: how many tokens all slots together stand for at most. ``sink_tokens``: leading tokens that every
    query sees exactly, beside the k slots (with a dense E: rows of E that start as one token each). ``dropout`` on
    attention weights.

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
        sharing: str = "headwise",
        attention_window: int | None = None,
        memory_budget: float | None = None,
        sink_tokens: int = 0,
        projection_init: str = "normal",
        freeze_projection: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        lengths = (projected_length,) * num_heads if isinstance(projected_length, int) else tuple(projected_length)
        check_attention(
            hidden_size=hidden_size, num_heads=num_heads, max_length=max_length, head_slots=lengths,
            projection=projection, sharing=sharing, projection_init=projection_init,
            attention_window=attention_window, memory_budget=memory_budget, sink_tokens=sink_tokens,
        )  # fmt: skip
        self.sinks = sink_tokens if projection in POOLED else 0
        self.hidden_size, self.num_heads, self.max_length = hidden_size, num_heads, max_length
        self.window, self.memory_budget, self.dropout = attention_window, memory_budget, dropout
        self.sharing = sharing
        self.query, self.key, self.value, self.output = (
            nn.Linear(hidden_size, hidden_size, bias=bias) for _ in range(4)
        )
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
        output_attentions: bool,
    ) -> Tensor | tuple[Tensor, Tensor]: ...

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        shared_projection: SequenceProjection | None = None,
        residual: Tensor | None = None,
        output_attentions: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend: hidden_states (B, n, D), n <= max_length; ``attention_mask`` (B, n), 1 text and 0 padding.

        A bool mask is taken as checked. Returns (B, n, D), and with ``output_attentions`` also the weights:
        (B, h, n, k); with a window w (B, h, n, S + 3 w), sinks and slots, then the query's block with both neighbours;
        (B, h, n, n) where the window reaches across ``max_length``.
        ``shared_projection``: the one projection of all layers, with sharing "layerwise" only.
        ``residual`` (B, n, D) is added to the output, within its product where that can be done.
        Raises InputError on a longer input or a mask of another shape.
        """
        if not output_attentions:
            parts = self.in_parts(hidden_states, attention_mask, shared_projection=shared_projection, residual=residual)
            if parts is not None:
                return assembled(parts, (hidden_states.shape[0], hidden_states.shape[1]))
        hidden, mask = self._checked(hidden_states, attention_mask)
        hidden = self._rounded(hidden)
        if self._in_reach(hidden.shape[1], eager=output_attentions):
            context, weights = self._full(hidden, mask, output_attentions)
        else:
            context, weights = self._attend(hidden, mask, self._projections(shared_projection), output_attentions)
        out = apply_linear(self.output, context.transpose(1, 2).flatten(2), residual=residual)
        # Eager attention always has weights.
        return (out, weights) if output_attentions else out  # ty: ignore[invalid-explicit-return]

    def in_parts(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        shared_projection: SequenceProjection | None = None,
        residual: Tensor | None = None,
    ) -> Iterator[OutputPart] | None:
        """What ``forward`` returns, for some tokens after others; None where it can only be had whole.

        Each part comes with the documents and tokens that it is of; when the next one is asked for, these tokens of
        ``hidden_states`` and ``residual`` may have been overwritten. Texts of 4,096 tokens and more, on a CPU without
        gradients.
        """
        if not can_stream(self, hidden_states) or (self.training and self.dropout):
            return None
        if self._in_reach(hidden_states.shape[1], eager=False):
            return None
        projections = self._projections(shared_projection)
        if self.window is not None and not self._slots_are_means(projections):
            return None
        hidden, mask = self._checked(hidden_states, attention_mask)
        if self.window is None:
            return self._compressed_parts(hidden, mask, projections, residual)
        lengths = text_lengths(mask, batch=hidden.shape[0], length=hidden.shape[1])
        if lengths is None:
            return None
        memory = self._memory(hidden, mask, projections[0], list(range(self.num_heads)))
        layer = WindowedLayer(
            self.query, self.key, self.value, self.output, num_heads=self.num_heads, window=self.window,
            sinks=self.sinks, bias=self.memory_bias, budget=self.memory_budget,
        )  # fmt: skip
        return windowed_parts(layer, hidden, memory, lengths, residual)

    def _slots_are_means(self, projections: list[SequenceProjection]) -> bool:
        """Whether the slots of all heads can be formed from the hidden states at the cost of a mean."""
        plain = all(is_plain(layer, nn.Linear) or is_plain(layer, PackedLinear) for layer in (self.key, self.value))
        return plain and len(projections) == 1 and isinstance(projections[0], MeanProjection)

    def _checked(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The hidden states with padding blanked, and the mask as bool."""
        batch, length, _ = hidden_states.shape
        if length > self.max_length:
            raise InputError(f"the input has n={length} tokens, this layer takes at most max_length={self.max_length}")
        if mask is not None and (mask.dtype != torch.bool or mask.shape != (batch, length)):
            mask = checked_mask(mask, batch=batch, length=length)
        return blank_padding(hidden_states, mask), mask

    def _rounded(self, hidden: Tensor) -> Tensor:
        """``hidden`` in autocast's dtype, once and not in each product, where products alone see it."""
        device = hidden.device.type
        cast = hidden.dtype == torch.float32 and torch.is_autocast_enabled(device)
        if not cast or not all(is_affine(layer) for layer in (self.query, self.key, self.value)):
            return hidden
        return hidden.to(torch.get_autocast_dtype(device))

    def _in_reach(self, length: int, *, eager: bool) -> bool:
        """Whether every query sees every token exactly, so that the memory is empty."""
        if self.covers_all:
            return True
        if self.window is None or eager or torch.compiler.is_compiling():
            return False
        return length <= 2 * self.window and not (self.training and _in_process_group())

    def _full(self, hidden: Tensor, mask: Tensor | None, eager: bool) -> tuple[Tensor, Tensor | None]:
        heads = (
            self._by_head(apply_linear(layer, hidden)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        implementation = "eager" if eager else "sdpa"
        return compressed_attention(*heads, slot_mask=mask, implementation=implementation, dropout=dropout)

    def _projections(self, shared: SequenceProjection | None) -> list[SequenceProjection]:
        if (shared is not None) != (self.sharing == "layerwise"):
            raise ConfigurationError(
                "sharing='layerwise' needs the projection of all layers: forward(..., shared_projection="
                "make_projection(...))"
                if shared is None
                else f"shared_projection is for sharing='layerwise', this layer has sharing={self.sharing!r}"
            )
        # nn.ModuleList forgets what its modules are.
        return list(self.groups) if shared is None else [shared]  # ty: ignore[invalid-explicit-return]

    def _compressed_parts(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        projections: list[SequenceProjection],
        residual: Tensor | None,
    ) -> Iterator[OutputPart]:
        memories = self._memories(hidden, mask, projections)
        rows = rows_of_each(hidden.shape[0])
        for start in range(0, hidden.shape[1], rows):
            where = (slice(None), slice(start, start + rows))
            context, _ = self._compressed(hidden[where], memories, eager=False)
            added = None if residual is None else residual[where]
            yield where, apply_linear(self.output, context.transpose(1, 2).flatten(2), residual=added)

    def _attend(
        self, hidden: Tensor, mask: Tensor | None, projections: list[SequenceProjection], eager: bool
    ) -> tuple[Tensor, Tensor | None]:
        if self.window is None:
            return self._compressed(hidden, self._memories(hidden, mask, projections), eager)
        query = self._queries(hidden)
        keys, values = self._keys_and_values(hidden, mask)
        parts = []
        for heads, projection in zip(self.head_groups, projections, strict=True):
            own = (self._of_heads(x, heads, axis) for x, axis in ((query, 1), (keys, 2), (values, 2)))
            parts.append(self._windowed(*own, mask, projection, heads, eager))
        return self._joined(parts)

    def _of_heads(self, x: Tensor, heads: list[int], axis: int) -> Tensor:
        """The part of ``x`` that is of ``heads``, which ``axis`` counts: ``x`` itself where they are all."""
        return x if len(heads) == self.num_heads else x[(slice(None),) * axis + (heads,)]

    def _keys_and_values(self, hidden: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of every token, (B, n, h, d) each, padding blanked."""
        key, value = (blank_padding(apply_linear(layer, hidden), mask) for layer in (self.key, self.value))
        return self._by_head(key), self._by_head(value)

    def _compressed(self, hidden: Tensor, memories: list[Memory], eager: bool) -> tuple[Tensor, Tensor | None]:
        """hidden (B, c, D) attended to the slots of each group of heads: (B, h, c, d), and weights or None."""
        query = self._queries(hidden)
        return self._joined([
            compressed_attention(
                self._of_heads(query, heads, 1), memory.key, memory.value,
                slot_mask=memory.usable, implementation="eager" if eager else "sdpa",
                dropout=self.dropout if self.training else 0.0,
            )
            for heads, memory in zip(self.head_groups, memories, strict=True)
        ])  # fmt: skip

    def _queries(self, hidden: Tensor) -> Tensor:
        return self._by_head(apply_linear(self.query, hidden)).transpose(1, 2)

    def _joined(self, parts: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
        """Contexts and weights of all heads, from those of the groups."""
        return self._in_head_order([p[0] for p in parts]), self._in_head_order(_same_width([p[1] for p in parts]))

    def _memories(self, hidden: Tensor, mask: Tensor | None, projections: list[SequenceProjection]) -> list[Memory]:
        """Of each group of heads; from full keys and values where their layers are more than weights (adapters)."""
        groups = list(zip(self.head_groups, projections, strict=True))
        if is_affine(self.key) and is_affine(self.value):
            return [self._memory(hidden, mask, projection, heads) for heads, projection in groups]
        keys, values = self._keys_and_values(hidden, mask)
        return [
            self._memory_of_heads(*(self._of_heads(x, heads, 2) for x in (keys, values)), mask, projection)
            for heads, projection in groups
        ]

    def _memory(self, hidden: Tensor, mask: Tensor | None, projection: SequenceProjection, heads: list[int]) -> Memory:
        """Slots of ``heads`` from the hidden states, sinks in front."""
        key, value = (self._weights_of(layer, heads, hidden) for layer in (self.key, self.value))
        memory = projection.from_hidden(hidden, mask, key, value, len(heads), sinks=self.sinks)
        if self.sinks:
            first = first_tokens(hidden, self.sinks)
            leading = (fused_linear(first, *side).unflatten(2, (len(heads), -1)) for side in (key, value))
            memory = self._with_sinks(memory, *leading, mask, hidden.shape[1])
        return memory

    def _windowed(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        projection: SequenceProjection,
        heads: list[int],
        eager: bool,
    ) -> tuple[Tensor, Tensor | None]:
        assert self.window is not None
        assert self.memory_bias is not None
        dropout = self.dropout if self.training else 0.0
        given = (query, key.transpose(1, 2), value.transpose(1, 2))
        options: Any = {
            "window": self.window, "memory_bias": self._of_heads(self.memory_bias, heads, 0),
            "memory_budget": self.memory_budget, "sinks": self.sinks, "mask": mask,
        }  # fmt: skip
        # A compiler is not asked about the length: that would tie its graph to some lengths.
        if not (eager or dropout or torch.compiler.is_compiling()) and projection.gives_tokens(key.shape[1]):
            out = single_token_attention(*given, **options)
            if out is not None:
                return out, None
        memory = self._memory_of_heads(key, value, mask, projection)
        assert memory.slots is not None
        return windowed_attention(
            *given, memory.key, memory.value, memory.slots, **options,
            of_tokens=not isinstance(projection, ConvolutionProjection),
            implementation="eager" if eager else "sdpa", dropout=dropout,
        )  # fmt: skip

    def _memory_of_heads(
        self, key: Tensor, value: Tensor, mask: Tensor | None, projection: SequenceProjection
    ) -> Memory:
        """Slots from keys and values (B, n, h, d) of every token, sinks in front."""
        memory = projection.from_heads(key, value, mask, sinks=self.sinks)
        if self.sinks:
            leading = (first_tokens(x, self.sinks) for x in (key, value))
            memory = self._with_sinks(memory, *leading, mask, key.shape[1])
        return memory

    def _with_sinks(self, memory: Memory, key: Tensor, value: Tensor, mask: Tensor | None, length: int) -> Memory:
        """Keys and values (B, s, h, d) of the sinks in front of the slots."""
        assert memory.slots is not None
        counts = sink_counts(mask, batch=key.shape[0], length=length, sinks=self.sinks, device=key.device)
        slots = join_slots(counts, memory.slots)
        keys = torch.cat([key.transpose(1, 2), memory.key], dim=2)
        values = torch.cat([value.transpose(1, 2), memory.value], dim=2)
        usable = (slots.count > 0)[:, None]
        return Memory(keys, values, None if self._all_hold_text(slots, mask, length) else usable, slots)

    def _all_hold_text(self, slots: Slots, mask: Tensor | None, length: int) -> bool:
        """Whether each slot is known to hold a token that is no sink; FlashAttention takes no mask."""
        known = mask is None and slots.uniform is not None and not torch.compiler.is_compiling()
        return known and self.sinks < min(length, slots.uniform)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.num_heads, -1))

    def _weights_of(self, layer: nn.Linear | PackedLinear, heads: list[int], hidden: Tensor) -> Weights:
        if isinstance(layer, PackedLinear):
            return Weights(layer.weight_for(hidden), layer.bias)
        if len(heads) == self.num_heads:
            return Weights(layer.weight, layer.bias)
        weight = layer.weight.unflatten(0, (self.num_heads, -1))[heads].flatten(0, 1)
        bias = None if layer.bias is None else layer.bias.unflatten(0, (self.num_heads, -1))[heads].flatten()
        return Weights(weight, bias)

    def _in_head_order(self, parts: list[Tensor | None]) -> Tensor:
        if len(parts) == 1 or parts[0] is None:
            return parts[0]  # ty: ignore[invalid-explicit-return]  None passes through
        joined = torch.cat(parts, dim=1)  # ty: ignore[invalid-argument-type]  all of them are tensors, or none
        order = [head for group in self.head_groups for head in group]
        return joined[:, torch.tensor(order, device=joined.device).argsort()]


def _in_process_group() -> bool:
    """Data-parallel training wants a gradient of every parameter, the memory's too, from every batch."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _same_width(weights: list[Tensor | None]) -> list[Tensor | None]:
    """Weights of heads with fewer slots, filled up with zeros in front so that they can stand in one tensor."""
    if weights[0] is None:
        return weights
    width = max(w.shape[-1] for w in weights if w is not None)
    return [w if w is None else nn.functional.pad(w, (width - w.shape[-1], 0)) for w in weights]
