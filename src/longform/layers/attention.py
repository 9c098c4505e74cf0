"""Linformer self-attention as a layer for any network.

Axes: B batch, n tokens, D hidden, h heads, d head dimension.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from longform.choices import POOLED
from longform.errors import ConfigurationError, InputError
from longform.functional.attention import slot_attention, weighted_slots
from longform.functional.positions.rotary import Rotation
from longform.functional.slots import Memory
from longform.functional.window import weighted_window, windowed_attention
from longform.layers.geometry import Projection, check_attention, check_reach
from longform.layers.linear import are_affine
from longform.layers.memory import (
    join_heads,
    join_weighted,
    memory_of_heads,
    memory_of_hidden,
    of_heads,
    weights_of_heads,
)
from longform.layers.self_attention import NOTHING_SHARED, SelfAttention, Shared
from longform.layers.sequence_projection import SequenceProjection, Weights, make_projection
from longform.layers.short_convolution import ShortConvolution


class LinformerAttention(SelfAttention):
    """Multi-head self-attention in O(n k): softmax(Q (E K)ᵀ / sqrt(d)) (F V) (paper §4, equation 7).

    ``hidden_size`` D and ``num_heads`` h of ``head_dim`` d (None: D / h); ``max_length`` N, the most tokens;
    ``projected_length`` k, or one k a head (a list of h; sharing "none"). ``projection``: how keys and values are
    shortened, a name ("linear", the paper's, "weighted_mean", "mean", ...) or a Projection with its options.
    ``attention_window``: None for the paper's attention, or tokens seen exactly on each side, in blocks of that size,
    beside the slots of the rest. ``short_convolution``: taps, an odd number, of a convolution over neighbouring tokens
    that is added to the input, see ShortConvolution; 0 for none. ``dropout`` on attention weights; ``bias`` in the four
    projections of features. ``num_key_value_heads``: heads of keys and values, each for as many heads of queries; None
    for h of them. ``device``, ``dtype``: of the parameters.

    Weights that ``forward`` returns are (B, h, n, k); with a window w (B, h, n, S + 3 w), sinks and slots, then the
    query's block with both neighbours; (B, h, n, n) where the window reaches across ``max_length``.
    Raises ConfigurationError for options that do not go together.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        max_length: int,
        projected_length: int | list[int] | tuple[int, ...] = 128,
        projection: str | Projection = "linear",
        attention_window: int | None = None,
        short_convolution: int = 0,
        dropout: float = 0.0,
        bias: bool = True,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        options = Projection(projection) if isinstance(projection, str) else projection
        lengths = (projected_length,) * num_heads if isinstance(projected_length, int) else tuple(projected_length)
        check_attention(
            hidden_size=hidden_size, num_heads=num_heads, head_dim=head_dim, max_length=max_length,
            head_slots=lengths, options=options, attention_window=attention_window, short_convolution=short_convolution,
        )  # fmt: skip
        super().__init__(
            hidden_size, num_heads, head_dim=head_dim, num_key_value_heads=num_key_value_heads, max_length=max_length,
            bias=bias,
        )  # fmt: skip
        self.sinks = options.sink_tokens if options.kind in POOLED else 0
        self.window, self.memory_budget, self.dropout = attention_window, options.memory_budget, dropout
        self.projection_sharing = options.sharing
        # Blocks of w with both neighbours reach across the whole text: full attention, and no memory to own.
        self.covers_all = attention_window is not None and 2 * attention_window >= max_length
        self._all_heads = list(range(num_heads))
        self.head_groups = [
            [head for head, slots in enumerate(lengths) if slots == distinct] for distinct in dict.fromkeys(lengths)
        ]
        self.groups = nn.ModuleList()
        if options.sharing != "layerwise" and not self.covers_all:
            sizes: Any = {"hidden_size": hidden_size, "head_dim": self.head_dim, "max_length": max_length}
            for heads in self.head_groups:
                self.groups.append(make_projection(options, heads=len(heads), slots=lengths[heads[0]], **sizes))
        self.convolution = ShortConvolution(hidden_size, short_convolution) if short_convolution else None
        windowed = attention_window is not None and not self.covers_all
        self.memory_bias = nn.Parameter(torch.zeros(num_heads)) if windowed else None
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        shared: Shared = NOTHING_SHARED,
        output_attentions: bool = False,
    ) -> Any:
        """Attend: hidden_states (B, n, D) of n <= max_length tokens; ``attention_mask`` (B, n), 1 text and 0 padding.

        ``shared``: what a model hands to all its layers. Returns (B, n, D), and with ``output_attentions`` a pair of
        that and the weights. Raises InputError on an input of another shape or length or a mask of another shape, and
        ConfigurationError where the window is too small for a bias by distance.
        """
        context, weights = self.context(hidden_states, attention_mask, shared, output_attentions=output_attentions)
        out = self.output(context)
        return (out, weights) if output_attentions else out

    def context(
        self, hidden_states: Tensor, attention_mask: Tensor | None, shared: Shared, *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the output projection, (B, n, h d), and weights or None; see ``forward``."""
        if shared.distance_bias is not None:
            self.check_distances(shared.distance_bias)
        hidden, mask = self.checked(hidden_states, attention_mask)
        reading = hidden if shared.readers is None else self.checked(hidden_states, shared.readers)[0]
        query = self.queries(reading, shared.rotation).transpose(1, 2)
        if self.window is None or self.reaches_all(hidden.shape[1], output_attentions=output_attentions):
            memories = self.memories(hidden, mask, shared)
            context, weights = self.attended(query, memories, shared.distance_bias, output_attentions=output_attentions)
        elif shared.readers is None:
            context, weights = self._windowed(query, hidden, mask, shared, output_attentions)
        else:
            raise InputError(
                f"tokens that are not read (query_expansion with attend=False) need a text of at most 2 x "
                f"attention_window={self.window} tokens, not n={hidden.shape[1]}: shorten the query, or convert with a "
                "wider window"
            )
        return context.transpose(1, 2).flatten(2), weights

    def check_distances(self, distance_bias: Tensor | None) -> None:
        """Raise ConfigurationError where the window is too small for ``distance_bias`` (h, 2 r + 1)."""
        if distance_bias is not None:
            check_reach(distance_bias.shape[1] // 2, window=self.window, max_length=self.max_length)

    def streams(self, length: int) -> bool:
        """Whether a text of ``length`` tokens may be attended some tokens at a time, from slots and neighbours."""
        return not self.reaches_all(length)

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
                "sharing='layerwise' needs the projection of all layers: forward(..., shared=Shared(projection="
                "make_projection(...)))"
                if shared is None
                else f"a shared projection is for sharing='layerwise', not sharing={self.projection_sharing!r}"
            )
        owned = self.groups if shared is None else [shared]
        return list(zip(self.head_groups, owned, strict=True))  # ty: ignore[invalid-explicit-return]  a list of modules

    def keys_and_values(
        self, hidden: Tensor, mask: Tensor | None, rotation: Rotation | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of every token, (B, n, h, d) each, keys turned by ``rotation``, padding blanked."""
        return self.keys(hidden, mask, rotation), self.values(hidden, mask)

    def memories(self, hidden: Tensor, mask: Tensor | None, shared: Shared) -> list[tuple[list[int], Memory]]:
        """Heads and what they attend to for hidden (B, n, D): with a window all tokens, which are in reach then, else
        slots.
        """
        if self.window is None:
            return self.slot_memories(hidden, mask, shared)
        keys, values = (x.transpose(1, 2) for x in self.keys_and_values(hidden, None, shared.rotation))
        return [(self._all_heads, Memory(keys, values, None if mask is None else mask[:, None], None))]

    def slot_memories(self, hidden: Tensor, mask: Tensor | None, shared: Shared) -> list[tuple[list[int], Memory]]:
        """Heads of one k and their slots, from hidden (B, n, D), or from full keys and values where keys are turned or
        layers are adapters.
        """
        groups = self._groups(shared.projection)
        if shared.rotation is None and are_affine(self.key, self.value):
            found = []
            for heads, projection in groups:
                sides = self.key, self.value
                if len(groups) > 1 or self.num_key_value_heads < self.num_heads:
                    sides = self._sides_of(heads)
                memory = memory_of_hidden(hidden, mask, projection, *sides, len(heads), self.sinks)
                found.append((heads, memory))
            return found
        full = self.keys_and_values(hidden, mask, shared.rotation)
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
                of_heads(query, heads, 1), memory.key, memory.value, slot_mask=memory.usable,
                dropout=rate, distance_bias=_of_heads(distance_bias, heads),
            )
            for heads, memory in memories
        ]  # fmt: skip
        return _joined(parts, [heads for heads, _ in memories], output_attentions)

    def _windowed(
        self,
        query: Tensor,
        hidden: Tensor,
        mask: Tensor | None,
        shared: Shared,
        output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The context of query (B, h, n, d) in hidden (B, n, D), near tokens exactly, far ones in slots: (B, h, n, d),
        and weights or None.
        """
        assert self.window is not None
        attend = weighted_window if output_attentions else windowed_attention
        parts, length, groups = [], query.shape[2], self._groups(shared.projection)
        full = self.keys_and_values(hidden, mask, shared.rotation)
        for heads, projection in groups:
            key, value = (of_heads(x, heads, 2) for x in full)
            # A compiler is not asked about the length: that would tie its graph to some lengths.
            of_tokens = not torch.compiler.is_compiling() and projection.gives_tokens(length)
            parts.append(attend(
                of_heads(query, heads, 1), key.transpose(1, 2), value.transpose(1, 2),
                partial(memory_of_heads, key, value, mask, projection, self.sinks, hidden), window=self.window,
                memory_bias=_of_heads(self.memory_bias, heads), distance_bias=_of_heads(shared.distance_bias, heads),
                memory_budget=self.memory_budget, sinks=self.sinks, mask=mask,
                dropout=self.dropout if self.training else 0.0, slots_are_tokens=of_tokens,
            ))  # fmt: skip
        return _joined(parts, [heads for heads, _ in groups], output_attentions)


def _joined(parts: list[Any], groups: list[list[int]], output_attentions: bool) -> tuple[Tensor, Tensor | None]:
    if output_attentions:
        return join_weighted(parts, groups)
    return join_heads([context for context, _ in parts], groups), None


def _of_heads(x: Tensor | None, heads: list[int]) -> Tensor | None:
    return None if x is None else of_heads(x, heads, 0)


def _in_process_group() -> bool:
    """Data-parallel training wants a gradient of every parameter, the memory's too, from every batch."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
