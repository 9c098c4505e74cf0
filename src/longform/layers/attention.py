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
from longform.functional.positions.rotary import Rotation
from longform.functional.slots import Memory
from longform.functional.window import weighted_window, windowed_attention
from longform.layers.geometry import check_attention, check_reach
from longform.layers.linear import apply_linear, is_affine
from longform.layers.memory import (
    join_heads,
    join_weighted,
    memory_of_heads,
    memory_of_hidden,
    of_heads,
    weights_of_heads,
)
from longform.layers.self_attention import SelfAttention
from longform.layers.sequence_projection import SequenceProjection, make_projection


class LinformerAttention(SelfAttention):
    """Multi-head self-attention in O(n k): softmax(Q (E K)ᵀ / sqrt(d)) (F V) (paper §4, equation 7).

    ``hidden_size`` D and ``num_heads`` h of ``head_dim`` d (None: D / h); ``max_length`` N, the most tokens;
    ``projected_length`` k, or one k a head (a list of h; sharing "none"). ``projection``: "linear" (learned E, F),
    "mean", "max", "convolution", "random".
    ``projection_sharing`` (or ``sharing``): "none" (an E and F a head), "headwise" (one each for all heads),
    "key_value" (E = F), "layerwise" (E = F given to ``forward`` by their owner, see ``shared_projection``).
    ``attention_window``: None for the paper's attention, or tokens seen exactly on each side, in blocks of that size,
    beside the slots of the rest; ``memory_budget``: how many tokens all slots together stand for at most.
    ``sink_tokens``: leading tokens that every query sees exactly, beside the k slots (with a dense E: rows of E that
    start as one token each). ``num_key_value_heads``: heads of keys and values, each for as many heads of queries; None
    for h of them. ``dropout`` on attention weights; ``bias`` in the four projections.

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
        projection: str = "linear",
        projection_sharing: str = "headwise",
        attention_window: int | None = None,
        memory_budget: float | None = None,
        sink_tokens: int = 0,
        projection_init: str = "block_mean",
        freeze_projection: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        sharing: str | None = None,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
    ) -> None:
        sharing = projection_sharing if sharing is None else sharing
        lengths = (projected_length,) * num_heads if isinstance(projected_length, int) else tuple(projected_length)
        check_attention(
            hidden_size=hidden_size, num_heads=num_heads, head_dim=head_dim, max_length=max_length,
            head_slots=lengths, projection=projection, sharing=sharing, projection_init=projection_init,
            attention_window=attention_window, memory_budget=memory_budget, sink_tokens=sink_tokens,
        )  # fmt: skip
        super().__init__(
            hidden_size, num_heads, head_dim=head_dim, num_key_value_heads=num_key_value_heads, max_length=max_length,
            bias=bias,
        )  # fmt: skip
        self.sinks = sink_tokens if projection in POOLED else 0
        self.window, self.memory_budget, self.dropout = attention_window, memory_budget, dropout
        self.projection_sharing = sharing
        # Blocks of w with both neighbours reach across the whole text: full attention, and no memory to own.
        self.covers_all = attention_window is not None and 2 * attention_window >= max_length
        self.head_groups = [
            [head for head, slots in enumerate(lengths) if slots == distinct] for distinct in dict.fromkeys(lengths)
        ]
        self.groups = nn.ModuleList()
        if sharing != "layerwise" and not self.covers_all:
            self.groups.extend(
                make_projection(
                    projection, heads=len(heads), head_dim=self.head_dim, max_length=max_length,
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
        distance_bias: Tensor | None = ...,
        rotation: Rotation | None = ...,
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
        distance_bias: Tensor | None = ...,
        rotation: Rotation | None = ...,
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
        distance_bias: Tensor | None = None,
        rotation: Rotation | None = None,
        residual: Tensor | None = None,
        readers: Tensor | None = None,
        output_attentions: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend: hidden_states (B, n, D) of n <= max_length tokens; ``attention_mask`` (B, n), 1 text and 0 padding.

        ``shared_projection``: with sharing "layerwise". ``distance_bias`` (h, 2 r + 1): added to the logits by the
        distance from query to key, see RelativeAttentionBias. ``rotation``: queries and keys are turned by it, keys
        before they are shortened, see RotaryPositions. ``residual`` (B, n, D) is added. ``readers`` bool (B, n):
        the text and tokens that read it without being read, in texts that every query sees as a whole. Returns
        (B, n, D), and with ``output_attentions`` the weights. Raises InputError on a longer input or a mask of another
        shape, and ConfigurationError where the window is too small for ``distance_bias``.
        """
        self.check_distances(distance_bias)
        hidden, mask = self.checked(hidden_states, attention_mask)
        reading = hidden if readers is None else self.checked(hidden_states, readers)[0]
        query = self.queries(reading, rotation).transpose(1, 2)
        whole = self.window is None or self.reaches_all(hidden.shape[1], output_attentions=output_attentions)
        if readers is not None and not whole:
            raise InputError(
                f"tokens that are not read (query_expansion with attend=False) need a text of at most 2 x "
                f"attention_window={self.window} tokens, not n={hidden.shape[1]}: shorten the query, or convert with a "
                "wider window"
            )
        if whole:
            memories = self.memories(hidden, mask, shared_projection, rotation)
            context, weights = self.attended(query, memories, distance_bias, output_attentions=output_attentions)
        else:
            groups, full = self._groups(shared_projection), self.keys_and_values(hidden, mask, rotation)
            context, weights = self._windowed(query, full, mask, groups, distance_bias, output_attentions)
        out = apply_linear(self.output, context.transpose(1, 2).flatten(2), residual=residual)
        return (out, weights) if weights is not None else out

    def check_distances(self, distance_bias: Tensor | None) -> None:
        """Raise ConfigurationError where the window is too small for ``distance_bias`` (h, 2 r + 1)."""
        if distance_bias is not None:
            check_reach(distance_bias.shape[1] // 2, window=self.window, max_length=self.max_length)

    def streams(self, length: int) -> bool:
        """Whether a text of ``length`` tokens may be attended some tokens at a time, from slots and neighbours."""
        return type(self) is LinformerAttention and not self.reaches_all(length)

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

    def keys_and_values(
        self, hidden: Tensor, mask: Tensor | None, rotation: Rotation | None = None
    ) -> tuple[Tensor, Tensor]:
        """Of every token, (B, n, h, d) each, keys turned by ``rotation``, padding blanked."""
        return self.keys(hidden, mask, rotation), self.values(hidden, mask)

    def memories(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        shared_projection: SequenceProjection | None = None,
        rotation: Rotation | None = None,
    ) -> list[tuple[list[int], Memory]]:
        """Heads and what they attend to for hidden (B, n, D): with a window all tokens, which are in reach then, else
        slots.
        """
        if self.window is None:
            return self.slot_memories(hidden, mask, shared_projection, rotation)
        keys, values = (x.transpose(1, 2) for x in self.keys_and_values(hidden, None, rotation))
        return [(list(range(self.num_heads)), Memory(keys, values, None if mask is None else mask[:, None], None))]

    def slot_memories(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        shared_projection: SequenceProjection | None,
        rotation: Rotation | None = None,
    ) -> list[tuple[list[int], Memory]]:
        """Heads of one k and their slots, from hidden (B, n, D), or from full keys and values where keys are turned or
        layers are adapters.
        """
        groups = self._groups(shared_projection)
        if rotation is None and is_affine(self.key) and is_affine(self.value):
            return [(heads, self._slots_of(hidden, mask, heads, projection)) for heads, projection in groups]
        full = self.keys_and_values(hidden, mask, rotation)
        return [
            (heads, memory_of_heads(*(of_heads(x, heads, 2) for x in full), mask, projection, self.sinks))
            for heads, projection in groups
        ]

    def _slots_of(
        self, hidden: Tensor, mask: Tensor | None, heads: list[int], projection: SequenceProjection
    ) -> Memory:
        times = self.num_heads // self.num_key_value_heads
        own = heads if times == 1 else [head // times for head in heads]
        sides = (weights_of_heads(layer, own, self.num_key_value_heads, hidden) for layer in (self.key, self.value))
        return memory_of_hidden(hidden, mask, projection, *sides, len(heads), self.sinks)

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
        attend = weighted_slots if output_attentions else slot_attention
        parts = [
            attend(
                of_heads(query, heads, 1), memory.key, memory.value, slot_mask=memory.usable,
                dropout=self.dropout if self.training else 0.0, distance_bias=_of_heads(distance_bias, heads),
            )
            for heads, memory in memories
        ]  # fmt: skip
        return _joined(parts, [heads for heads, _ in memories], output_attentions)

    def _windowed(
        self,
        query: Tensor,
        full: tuple[Tensor, Tensor],
        mask: Tensor | None,
        groups: list[tuple[list[int], SequenceProjection]],
        distance_bias: Tensor | None,
        output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The context of query (B, h, n, d), near tokens exactly, far ones in slots, from the keys and values (B, n, h,
        d) of all tokens: (B, h, n, d), and weights or None.
        """
        assert self.window is not None
        attend = weighted_window if output_attentions else windowed_attention
        parts, length = [], query.shape[2]
        for heads, projection in groups:
            key, value = (of_heads(x, heads, 2) for x in full)
            # A compiler is not asked about the length: that would tie its graph to some lengths.
            of_tokens = not torch.compiler.is_compiling() and projection.gives_tokens(length)
            parts.append(attend(
                of_heads(query, heads, 1), key.transpose(1, 2), value.transpose(1, 2),
                partial(memory_of_heads, key, value, mask, projection, self.sinks), window=self.window,
                memory_bias=_of_heads(self.memory_bias, heads), distance_bias=_of_heads(distance_bias, heads),
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
