"""Linformer self-attention as a layer for any network.

Axes: B batch, n tokens, D hidden, h heads, d head dimension.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from longform.choices import POOLED
from longform.errors import ConfigurationError, InputError
from longform.functional.attention import slot_attention, weighted_slots
from longform.functional.masks import blank_padding, mask_of_text, refuse_nested
from longform.functional.slots import Memory
from longform.functional.window import weighted_window, windowed_attention
from longform.layers.causal_cache import attend_next, remember
from longform.layers.geometry import Lengths, Projection, check_attention, check_causal, check_reach
from longform.layers.grids import Grid, arrangement
from longform.layers.memory import (
    join_heads,
    join_weighted,
    memory_of_heads,
    memory_of_hidden,
    of_heads,
    weights_of_heads,
)
from longform.layers.self_attention import NOTHING_SHARED, SelfAttention, Shared
from longform.layers.sequence_projection import SequenceProjection, Weights, in_process_group, make_projection
from longform.layers.short_convolution import ShortConvolution


def _options(projection: str | Projection, prefix: int) -> Projection:
    """A projection with its options; ``prefix``: leading tokens that every query sees exactly."""
    options = Projection(projection) if isinstance(projection, str) else projection
    return replace(options, sink_tokens=prefix) if prefix else options


def _reaches(window: int | None, tokens: int) -> bool:
    """Whether blocks of the window with both neighbours reach across so many tokens."""
    return window is not None and 2 * window >= tokens


def _equal(lengths: Sequence[int]) -> list[list[int]]:
    """Heads of one k together, in the order of their first ones."""
    return [[head for head, slots in enumerate(lengths) if slots == each] for each in dict.fromkeys(lengths)]


def _single_tokens(projections: list[SequenceProjection], sinks: int) -> int:
    """Tokens of the longest text whose slots are its tokens, in all heads; 0 with sinks, which would be slots twice."""
    return 0 if sinks else min((projection.single_tokens for projection in projections), default=0)


def _move(module: nn.Module, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    if device is not None or dtype is not None:
        module.to(device=device, dtype=dtype)


class LinformerAttention(SelfAttention):
    """Multi-head self-attention in O(n k): softmax(Q (E K)ᵀ / sqrt(d)) (F V) (paper §4, equation 7).

    ``hidden_size`` D and ``num_heads`` h of ``head_dim`` d (None: D / h); ``max_length`` N, the most tokens.
    ``projected_length``: k, the most slots (a shorter text has fewer), one k a head (a list of h; sharing "none"), or
    "auto": a slot for 4 tokens, at least 64 slots and at most 256. ``tokens_per_slot`` instead of k: a slot for so many
    tokens, 4 where k is None, whatever the length; without a ``max_length`` any length, where ``projection`` is one of
    runs of tokens.
    ``projection``: how keys and values are shortened, a name ("linear", the paper's, "weighted_mean", "mean", ...) or a
    Projection with its options. ``attention_window``: None for the paper's attention, or tokens seen exactly on each
    side, in blocks of that size, beside the slots of the rest; of these the ``selected_slots`` that a block looks at
    most are seen token by token, see functional/window/selection.py. ``short_convolution``: taps, an odd number, of a
    convolution over neighbouring tokens that is added to the input, see ShortConvolution; 0 for none. ``dropout`` on
    attention weights; ``bias`` in the four projections of features. ``num_key_value_heads``: heads of keys and values,
    each for as many heads of queries; None for h of them. ``context_size``: features of a ``context`` that is attended
    to, None for D. ``device``, ``dtype``: of the parameters.

    ``causal``: a query sees the tokens before it and itself: its block of ``attention_window`` tokens and the block
    before exactly, earlier ones through slots of runs that are complete.
    ``tile``: inputs are grids (B, H, W, D) or (B, T, H, W, D), channels last, and a slot is a tile of so many tokens
    along each axis; ``attention_window`` is then a tuple too, of the blocks' tokens along each axis.
    ``num_prefix_tokens``: leading tokens that every query sees exactly (class tokens); before a grid, they come with
    inputs (B, prefix + H W, D) and ``grid=(H, W)``, in the call or here.

    Weights that ``forward`` returns are (B, h, n, k); with a window w (B, h, n, S + 3 w), sinks and slots, then the
    query's block with both neighbours; (B, h, n, n) where the window reaches across ``max_length``.
    Raises ConfigurationError for options that do not go together.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        max_length: int | None = None,
        projected_length: int | str | list[int] | tuple[int, ...] | None = 128,
        tokens_per_slot: int | None = None,
        projection: str | Projection = "linear",
        attention_window: int | tuple[int, ...] | None = None,
        selected_slots: int = 0,
        short_convolution: int = 0,
        dropout: float = 0.0,
        bias: bool = True,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        context_size: int | None = None,
        causal: bool = False,
        tile: tuple[int, ...] | None = None,
        grid: tuple[int, ...] | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        options = _options(projection, num_prefix_tokens)
        tiles, axes, window = None, 1, cast(Any, attention_window)
        if tile is not None:
            tiles, axes = Grid(tile, window, num_prefix_tokens, grid), len(tile)
            tokens_per_slot, window = tiles.run, tiles.window
        sizes = Lengths.of(
            max_length,
            projected_length,
            tokens_per_slot,
            kind=options.kind,
            heads=num_heads,
            fixed=causal,
            window=window,
        )
        lengths = sizes.slots
        check_attention(
            hidden_size=hidden_size,
            num_heads=num_heads,
            head_dim=head_dim,
            max_length=sizes.tokens,
            head_slots=lengths,
            options=options,
            attention_window=window,
            selected_slots=selected_slots,
            short_convolution=short_convolution,
            causal=causal,
        )
        if causal:
            check_causal(options.kind, window, sizes)
        super().__init__(
            hidden_size,
            num_heads,
            head_dim=head_dim,
            num_key_value_heads=num_key_value_heads,
            max_length=max_length,
            bias=bias,
            context_size=context_size,
        )
        self.sinks = options.sink_tokens if options.kind in POOLED else 0
        self.window, self.memory_budget, self.dropout = window, options.memory_budget, dropout
        self.projection_sharing, self.causal, self.grid = options.sharing, causal, tiles
        self.selected_slots = min(selected_slots, *lengths)  # there are no more
        # Blocks of w with both neighbours reach across the whole text: full attention, and no memory to own.
        self.covers_all = _reaches(window, sizes.tokens) and not causal and tile is None
        self._all_heads = list(range(num_heads))
        self.head_groups = _equal(lengths)
        self._make_projection = partial(
            make_projection,
            options,
            hidden_size=self.context_size,
            head_dim=self.head_dim,
            max_length=sizes.tokens,
            fixed_runs=sizes.fixed,
        )
        self._slots = lengths
        owns = options.sharing != "layerwise" and not self.covers_all
        own = [self.new_projection(heads) for heads in (self.head_groups if owns else ())]
        self.groups = nn.ModuleList(own)
        self.single_tokens = _single_tokens(own, self.sinks)
        if short_convolution:
            self.convolution = ShortConvolution(self.context_size, short_convolution, causal=causal, axes=axes)
        windowed = window is not None and not self.covers_all
        self.memory_bias = nn.Parameter(torch.empty(num_heads)) if windowed else None
        LinformerAttention.reset_parameters(self)
        _move(self, device, dtype)

    def reset_parameters(self) -> None:
        """Begin its own parameters anew, not those of the modules in it."""
        if self.memory_bias is not None:
            nn.init.zeros_(self.memory_bias)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        grid: tuple[int, ...] | None = None,
        shared: Shared = NOTHING_SHARED,
        output_attentions: bool = False,
    ) -> Any:
        """Attend: hidden_states (B, n, D) of n <= max_length tokens; ``attention_mask`` (B, n), 1 text and 0 padding.

        ``key_padding_mask`` (B, n) instead: torch's convention, True for padding. A bool ``attention_mask`` that means
        this cannot be told from one that means text.
        ``context`` (B, m, context_size): attended to in place of the input, under ``context_mask`` (B, m), 1 text.
        ``grid``: tokens along each axis, of an input (B, prefix + H W, D) to a layer with ``tile``; masks have the
        shape of the input without D.
        ``shared``: what a model hands to all its layers. Returns the input's shape, and with ``output_attentions`` a
        pair of that and the weights. Raises InputError on an input of another shape or length or a mask of another
        shape, and ConfigurationError where the window is too small for a bias by distance.
        """
        if hidden_states.is_nested:  # before its shape is asked for
            refuse_nested(hidden_states)
        shape = hidden_states.shape
        mask = attention_mask if key_padding_mask is None else mask_of_text(attention_mask, key_padding_mask)
        if context is not None:
            inside, weights = self.across(hidden_states, context, context_mask, output_attentions=output_attentions)
        elif self.grid is None:
            inside, weights = self.context(hidden_states, mask, shared, output_attentions=output_attentions)
        else:
            shared = shared if shared.grid is not None else shared._replace(grid=self.grid.extents(shape, grid))
            hidden = hidden_states.flatten(1, -2) if len(shape) > 3 else hidden_states
            mask = mask.flatten(1) if mask is not None and mask.shape == shape[:-1] else mask
            inside, weights = self.context(hidden, mask, shared, output_attentions=output_attentions)
        out = self.output(inside)
        out = out if len(shape) == 3 else out.view(shape)
        return (out, weights) if output_attentions else out

    def new_projection(self, heads: list[int]) -> SequenceProjection:
        """A projection, not this layer's own, for ``heads`` of one k."""
        return self._make_projection(heads=len(heads), slots=self._slots[heads[0]])

    def across(
        self,
        hidden_states: Tensor,
        context: Tensor,
        mask: Tensor | None,
        value: Tensor | None = None,
        *,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the output projection, (B, n, h d), of queries (B, n, D) that attend to ``context`` (B, m, .),
        and weights (B, h, n, k) or None; ``value`` (B, m, .): what values are made of, None for the context.

        Raises InputError on other shapes, ConfigurationError where there is a window: it is of one text.
        """
        if self.window is not None or self.grid is not None:
            raise ConfigurationError(
                "a context is attended to through its slots alone: make the layer with attention_window=None, "
                f"causal=False and tile=None, not attention_window={self.window}, causal={self.causal}"
            )
        self.check_shape(hidden_states, "hidden_states")
        self.check_shape(context, "context")
        if len(context) != len(hidden_states) or (value is not None and value.shape[:2] != context.shape[:2]):
            other = "hidden_states" if value is None else "hidden_states and value"
            raise InputError(f"context (or key) {tuple(context.shape)} and {other} are of other batches or tokens")
        if context.shape[1] == 0 and not torch.compiler.is_compiling():
            return self._of_nothing(hidden_states)
        source, mask = self.checked(context, mask, name="context")
        query = self.queries(hidden_states.to(source.dtype)).transpose(1, 2)
        if value is not None and value.shape[2] == self.context_size:  # as a convolution needs
            value, _ = self.checked(value, mask, name="context")
        elif value is not None:
            value = blank_padding(value, mask)
        memories = self.slot_memories(source, mask, Shared(value=value))
        out, weights = self.attended(query, memories, output_attentions=output_attentions)
        return out.transpose(1, 2).flatten(2), weights

    def context(
        self, hidden_states: Tensor, attention_mask: Tensor | None, shared: Shared, *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the output projection, (B, n, h d), and weights or None; see ``forward``."""
        if shared.distance_bias is not None:
            self.check_distances(shared.distance_bias)
        # A compiler is not asked about the length: that would tie its graph to some lengths.
        if not torch.compiler.is_compiling() and 0 in hidden_states.shape[1:2]:
            self.check_shape(hidden_states, "hidden_states")
            return self._of_nothing(hidden_states)
        if shared.cache is not None and shared.cache.begun:
            out = attend_next(self, hidden_states, attention_mask, shared, output_attentions=output_attentions)
            return out, None
        hidden, mask = self.checked(hidden_states, attention_mask, shared.grid)
        if self.grid is not None:
            return self._in_tiles(hidden, mask, self.grid, shared, output_attentions)
        if shared.cache is not None:
            remember(self, hidden_states, hidden, mask, shared)
        reading = hidden
        if shared.readers is not None or shared.query is not None:
            reading, shared = self._reading(hidden_states, mask, shared)
        query = self.queries(reading, shared.rotation).transpose(1, 2)
        if self.window is None or self.reaches_all(hidden.shape[1], output_attentions=output_attentions):
            memories = self.memories(hidden, mask, shared)
            context, weights = self.attended(query, memories, shared.distance_bias, output_attentions=output_attentions)
        else:
            context, weights = self._windowed(query, hidden, mask, shared, output_attentions)
        return context.transpose(1, 2).flatten(2), weights

    def _reading(self, hidden_states: Tensor, mask: Tensor | None, shared: Shared) -> tuple[Tensor, Shared]:
        """Inputs of queries, (B, n, D), where they are not those of keys, and ``shared`` with inputs of values."""
        if shared.query is None or shared.value is None:
            return self.checked(hidden_states, shared.readers)[0], shared
        return self.checked(shared.query, mask)[0], shared._replace(value=self.checked(shared.value, mask)[0])

    def _of_nothing(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The context of hidden (B, n, D) in no tokens at all, zeros (B, n, h d), and weights (B, h, n, 0)."""
        batch, length, _ = hidden.shape
        width = self.num_heads * self.head_dim
        return hidden.new_zeros(batch, length, width), hidden.new_zeros(batch, self.num_heads, length, 0)

    def _in_tiles(
        self, hidden: Tensor, mask: Tensor | None, grid: Grid, shared: Shared, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """``context`` for a grid: hidden (B, n, D), tokens along its axes in ``shared``; see Arrangement."""
        if shared.grid is None or shared.rotation is not None or shared.distance_bias is not None:
            raise ConfigurationError(
                "a layer with tile= takes grids alone, without rotary or relative positions, which count along a text"
            )
        order = arrangement(grid, shared.grid, hidden.device)
        hidden, mask = order.arranged(hidden, mask)
        query = self.queries(hidden).transpose(1, 2)
        if self.window is None:
            memories = self.slot_memories(hidden, mask, shared)
            context, weights = self.attended(query, memories, output_attentions=output_attentions)
        else:
            context, weights = self._windowed(query, hidden, mask, shared, output_attentions, order.neighbours)
        weights = None if weights is None else weights[:, :, order.back]
        return context.transpose(1, 2).flatten(2)[:, order.back], weights

    def check_distances(self, distance_bias: Tensor | None) -> None:
        """Raise ConfigurationError where the window is too small for ``distance_bias`` (h, 2 r + 1)."""
        if distance_bias is not None and self.max_length is not None:
            check_reach(distance_bias.shape[1] // 2, window=self.window, max_length=self.max_length)

    def streams(self, length: int) -> bool:
        """Whether a text of ``length`` tokens may be attended some tokens at a time, from slots and neighbours."""
        return not self.causal and self.grid is None and not self.reaches_all(length)

    def reaches_all(self, length: int, *, output_attentions: bool = False) -> bool:
        """Whether every query sees every token of ``length`` exactly, so that there is no memory."""
        if self.covers_all:
            return True
        if self.causal or output_attentions or torch.compiler.is_compiling():
            return False
        most = self.single_tokens if self.window is None else 2 * self.window
        return length <= most and not (self.training and in_process_group())

    def _groups(self, shared: SequenceProjection | None) -> list[tuple[list[int], SequenceProjection]]:
        """Heads that have one k, and their projection. Raises ConfigurationError where ``shared`` is missing or too
        much.
        """
        if (shared is not None) != (self.projection_sharing == "layerwise"):
            raise ConfigurationError(
                "sharing='layerwise' needs the projection of all layers: forward(..., shared=Shared(projection="
                "make_projection(...)))"
                if shared is None
                else f"a shared projection is for sharing='layerwise', not sharing={self.projection_sharing!r}"
            )
        owned = self.groups if shared is None else [shared]
        return list(zip(self.head_groups, owned, strict=True))  # ty: ignore[invalid-explicit-return]  a list of modules

    def memories(self, hidden: Tensor, mask: Tensor | None, shared: Shared) -> list[tuple[list[int], Memory]]:
        """Heads and what they attend to for hidden (B, n, D): all tokens where these are in reach, else slots."""
        if not self.reaches_all(hidden.shape[1]):
            return self.slot_memories(hidden, mask, shared)
        keys, values = (x.transpose(1, 2) for x in self.keys_and_values(hidden, None, shared.rotation, shared.value))
        return [(self._all_heads, Memory(keys, values, None if mask is None else mask[:, None], None))]

    def slot_memories(self, hidden: Tensor, mask: Tensor | None, shared: Shared) -> list[tuple[list[int], Memory]]:
        """Heads of one k and their slots, from hidden (B, n, D), or from full keys and values where keys are turned,
        layers are adapters or values are made of something else.
        """
        groups = self._groups(shared.projection)
        if shared.rotation is None and shared.value is None and self.memory_is_affine():
            found = []
            for heads, projection in groups:
                sides = self.key, self.value
                if len(groups) > 1 or self.num_key_value_heads < self.num_heads:
                    sides = self._sides_of(heads)
                memory = memory_of_hidden(hidden, mask, projection, *sides, len(heads), self.sinks)
                found.append((heads, memory))
            return found
        full = self.keys_and_values(hidden, mask, shared.rotation, shared.value)
        return [
            (heads, memory_of_heads(*(of_heads(x, heads, 2) for x in full), mask, projection, self.sinks, hidden))
            for heads, projection in groups
        ]

    def _sides_of(self, heads: list[int]) -> list[Weights]:
        """The parts of the key and value layers that are of some ``heads``."""
        times = self.num_heads // self.num_key_value_heads
        own = [head // times for head in heads]
        return [weights_of_heads(layer, own, self.num_key_value_heads) for layer in (self.key, self.value)]

    def attended(
        self,
        query: Tensor,
        memories: list[tuple[list[int], Memory]],
        distance_bias: Tensor | None = None,
        *,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The context of query (B, h, n, d) in the ``memories`` of its heads: (B, h, n, d), and weights or None.

        ``distance_bias``: where these are all tokens.
        """
        rate = self.dropout if self.training else 0.0
        if len(memories) == 1 and not output_attentions:
            _, memory = memories[0]
            return slot_attention(
                query, memory.key, memory.value, slot_mask=memory.usable, dropout=rate, distance_bias=distance_bias
            )
        attend = weighted_slots if output_attentions else slot_attention
        parts = [
            attend(
                of_heads(query, heads, 1),
                memory.key,
                memory.value,
                slot_mask=memory.usable,
                dropout=rate,
                distance_bias=_of_heads(distance_bias, heads),
            )
            for heads, memory in memories
        ]
        return _joined(parts, [heads for heads, _ in memories], output_attentions)

    def _windowed(
        self,
        query: Tensor,
        hidden: Tensor,
        mask: Tensor | None,
        shared: Shared,
        output_attentions: bool,
        neighbours: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The context of query (B, h, n, d) in hidden (B, n, D), near tokens exactly, far ones in slots: (B, h, n, d),
        and weights or None. ``neighbours``: of the blocks of a grid.
        """
        if shared.readers is not None:
            raise InputError(
                f"tokens that are not read (query_expansion with attend=False) need a text of at most 2 x "
                f"attention_window={self.window} tokens, not n={hidden.shape[1]}: shorten the query, or convert with a "
                "wider window"
            )
        groups, dropout = self._groups(shared.projection), self.dropout if self.training else 0.0
        key, value = self.keys_and_values(hidden, mask, shared.rotation, shared.value)
        options = {
            "mask": mask, "window": self.window, "memory_budget": self.memory_budget, "sinks": self.sinks,
            "dropout": dropout, "causal": self.causal, "neighbours": neighbours, "selected": self.selected_slots,
        }  # fmt: skip
        if len(groups) == 1:
            biases = self.memory_bias, shared.distance_bias
            options["output_attentions"] = output_attentions
            return self._near_and_far(windowed_attention, groups[0][1], query, key, value, hidden, *biases, **options)
        parts = []
        for heads, projection in groups:
            own = of_heads(query, heads, 1), of_heads(key, heads, 2), of_heads(value, heads, 2)
            biases = _of_heads(self.memory_bias, heads), _of_heads(shared.distance_bias, heads)
            attend = weighted_window if output_attentions else windowed_attention
            parts.append(self._near_and_far(attend, projection, *own, hidden, *biases, **options))
        return _joined(parts, [heads for heads, _ in groups], output_attentions)

    def _near_and_far(
        self,
        attend: Callable[..., Any],
        projection: SequenceProjection,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor,
        memory_bias: Tensor | None,
        distance_bias: Tensor | None,
        *,
        mask: Tensor | None,
        **options: Any,
    ) -> Any:
        """``attend`` for heads of one ``projection``: query (B, h, n, d), key and value (B, n, h, d)."""
        # A compiler is not asked about the length: that would tie its graph to some lengths.
        asked = not (self.causal or torch.compiler.is_compiling())
        return attend(
            query,
            key.transpose(1, 2),
            value.transpose(1, 2),
            partial(memory_of_heads, key, value, mask, projection, self.sinks, hidden),
            memory_bias=memory_bias,
            distance_bias=distance_bias,
            mask=mask,
            slots_are_tokens=asked and key.shape[1] <= projection.single_tokens,
            **options,
        )


def _joined(parts: list[Any], groups: list[list[int]], output_attentions: bool) -> tuple[Tensor, Tensor | None]:
    if output_attentions:
        return join_weighted(parts, groups)
    return join_heads([context for context, _ in parts], groups), None


def _of_heads(x: Tensor | None, heads: list[int]) -> Tensor | None:
    return None if x is None else of_heads(x, heads, 0)
