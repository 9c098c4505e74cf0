"""Linformer self-attention as a layer for any network.

Axes: B batch, n tokens, D hidden, h heads, d head dimension, k slots, w window.
"""

from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from longform.choices import PROJECTION_KINDS
from longform.errors import ConfigurationError, InputError
from longform.functional.attention import slot_attention
from longform.functional.execution import cached_in_forward
from longform.functional.masks import check_tensors, checked_marks, mask_of_text
from longform.functional.slots import Exact, Slots, leading_tokens, marked_tokens
from longform.functional.window import windowed_attention
from longform.layers.causal_cache import CachedAttention, attend_cached
from longform.layers.grids import Arrangement, Grid, arrangement, of_flat_grid
from longform.layers.head_groups import Group, attend_by_groups, equal_lengths, repeated_heads, slots_of_groups
from longform.layers.linear import Weights, add_to, are_affine
from longform.layers.names import named
from longform.layers.options import AttentionOptions, Lengths, Projection
from longform.layers.position_options import check_reach
from longform.layers.self_attention import NOTHING_SHARED, Shared
from longform.layers.sequence_projection import DenseProjection, SequenceProjection, in_process_group, make_projection
from longform.layers.short_convolution import ShortConvolution


def _sees_all(options: Projection, sizes: Lengths, window: int | None) -> bool:
    """Whether every query sees every token of the longest text: in blocks of the window, or each as a slot."""
    if window is not None:
        return 2 * window >= sizes.tokens
    keeps = PROJECTION_KINDS[options.kind].keeps_tokens and not (options.sink_tokens or options.places)
    return keeps and min(sizes.slots) >= sizes.tokens


def _move(module: nn.Module, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    if device is not None or dtype is not None:
        module.to(device=device, dtype=dtype)


class LinformerAttention(CachedAttention):
    """Multi-head self-attention in O(n k): softmax(Q K'ᵀ / sqrt(d)) V' over k slots (paper §4, equation 7).

    ::

        Y = X + conv(X)                              depthwise, short_convolution taps around each token, zero at first
        Q, K, V = Y W_Q + b_Q, Y W_K + b_K, Y W_V + b_V                                           split into h heads
        K'_j = sum over t in run j of p_t K_t        slot j, and V'_j likewise
               p = softmax over run j of (Y u)       "weighted_mean": a vector u (D) of each head for K, one for V
               p = 1 / c_j                           "mean", of the c_j tokens of text in run j
        K' = E K, V' = F V                           "linear", the paper's: learned E and F (k, N), at first block means
        out = softmax(Q K'ᵀ / sqrt(d)) V' W_O + b_O

    Run j holds the positions j c to (j + 1) c - 1; c is ``tokens_per_slot``, or the smallest divisor of ceil(N / k)
    that fits the text into k slots, so that a text of at most k tokens is attended to exactly. "max" takes the largest
    of each feature, "convolution" learned taps. "by_place" is "linear" with E and F that begin as N(0, 1/k) and learn
    at the network's rate, "content_and_place" adds such E and F, times a number of each head that begins at zero, to
    weighted means. E and F use their first n columns; padding never counts. "latent" has no order: E is made of the
    input, by latents of each head that attend to it, see functional/latent.py, and a permutation of the tokens permutes
    the output, where neither positions nor a short convolution nor prefix tokens are there.

    With an ``attention_window`` of w tokens, a multiple of c, a query of block i sees the tokens of blocks i-1, i and
    i+1 themselves, and of slots only those of other blocks, in one softmax, in which the logit of a slot gets + log c_j
    + memory_bias of the head (learned, 0 at first), since it stands for c_j keys. Of these slots the ``selected_slots``
    with the largest products with the mean query of the block, for each head, are replaced by their tokens, see
    functional/window/selection.py.

    Words: a run is c neighbouring tokens; a slot the key and value that stand for it (``memory_bias`` and
    ``memory_budget`` weigh slots); an exact token one with a slot for itself, in no run, that every query sees: a sink
    if it is a leading one (``sink_tokens``), or marked by ``global_attention_mask``; a head group the heads of one k.

    Arguments:

    * ``hidden_size`` D and ``num_heads`` h of ``head_dim`` d (None: D / h).
    * ``max_length`` N: the most tokens; None for any number, with ``tokens_per_slot`` and runs of tokens, or latents.
    * ``projected_length``: k, the most slots (a shorter text has fewer); a list of h (one for each head, with
      ``projection_sharing="none"``); or "auto", a slot for 4 tokens, at least 64 slots and at most 256.
    * ``tokens_per_slot`` in place of k: a slot for so many tokens, whatever the length; 4 where neither is given, and
      64 slots of "latent".
    * ``projection``: how keys and values are shortened, a name ("weighted_mean", "by_place", "content_and_place",
      "latent", "mean", "max", "convolution", "linear", "random") or a Projection with its options.
    * ``projection_sharing``: "none" (an E and F a head), "headwise", "key_value" (E = F) or "layerwise" (E = F, handed
      to ``forward`` by its owner); ``projection_init``: how a linear E begins, "block_mean" or "normal";
      ``freeze_projection``: nothing of it is trained; ``memory_budget``: tokens that all slots together stand for at
      most beside a window, None for no limit.
    * ``attention_window``: None, or tokens that are seen exactly on each side, in blocks of that size.
    * ``selected_slots``: far slots that each block sees token by token.
    * ``short_convolution``: taps, an odd number, of a convolution over neighbouring tokens that is added to the input;
      0 for none; None for 5, and for none with "linear" and "random", as the paper has it, and "latent".
    * ``dropout``: of attention weights. ``bias``: of the four projections of features.
    * ``num_key_value_heads``: heads of keys and values, each for as many heads of queries; None for h of them.
    * ``share_kv``: values are the keys, of one layer.
    * ``context_size``: features of a ``context`` that is attended to; None for D.
    * ``causal``: a query sees the tokens before it and itself: its block and the block before exactly, earlier ones
      through slots of runs that are complete.
    * ``tile``: inputs are grids (B, H, W, D) or (B, T, H, W, D), channels last, and a slot is a tile of so many tokens
      along each axis; ``attention_window`` is then a tuple too, of a block's tokens along each axis.
    * ``grid``: tokens along each axis, of inputs (B, s + H W, D), s sinks; also in the call.
    * ``sink_tokens``: s, the sinks: leading tokens (class tokens) with a slot each beside
      the k; with "linear" rows of E that begin as one token each.
    * ``device``, ``dtype``: of the parameters.

    Weights that ``forward`` returns are (B, h, n, S), of exact tokens and slots; with a window (B, h, n, S + 3 w), of
    these, then of the query's block with both neighbours; (B, h, n, n) where the window reaches across ``max_length``,
    and where each token is a slot.
    Raises ConfigurationError for options that do not go together.
    """

    max_global_tokens = 256  # that a global_attention_mask may mark in a text: each costs every query what a slot does

    @named(AttentionOptions)
    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        max_length: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        share_kv: bool = False,
        context_size: int | None = None,
        causal: bool = False,
        tile: tuple[int, ...] | None = None,
        grid: tuple[int, ...] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        asked, tiles = AttentionOptions(**options), None
        if tile is not None:
            block: Any = asked.attention_window
            tiles = Grid(tile, block, asked.of_projection.sink_tokens, grid)
            asked = replace(asked, projected_length=None, tokens_per_slot=tiles.run, attention_window=tiles.window)
        chosen, taps, window = asked.of_projection, asked.taps, asked.attention_window
        sizes = asked.lengths(max_length, heads=num_heads, fixed=causal)
        lengths = sizes.slots
        asked.check(sizes, hidden_size=hidden_size, num_heads=num_heads, head_dim=head_dim, causal=causal, tile=tile)
        super().__init__(
            hidden_size,
            num_heads,
            head_dim=head_dim,
            num_key_value_heads=num_key_value_heads,
            max_length=max_length,
            bias=bias,
            dropout=dropout,
            context_size=context_size,
        )
        if share_kv:
            self.value = self.key
        self.sinks = 0 if chosen.kind in DenseProjection.kinds else chosen.sink_tokens  # E has rows for its own
        self._meet_latents(has_order=PROJECTION_KINDS[chosen.kind].has_order)
        self.window, self.memory_budget = window, chosen.memory_budget
        self.projection_sharing, self.causal, self.grid = chosen.sharing, causal, tiles
        self.selected_slots = min(asked.selected_slots, *lengths)  # no more than there are slots
        # Blocks of w with both neighbours reach across any text, or each token is a slot: full attention, and no slots.
        self.covers_all = _sees_all(chosen, sizes, window) and not (causal or tiles)
        self.head_groups = equal_lengths(lengths)
        self._slots = lengths
        self._make_projection = partial(
            make_projection,
            chosen,
            hidden_size=self.context_size,
            head_dim=self.head_dim,
            max_length=sizes.tokens,
            fixed_runs=sizes.fixed,
        )
        own = self._own_projections()
        self.groups = nn.ModuleList(own)  # a projection for each of ``head_groups``, by its name in saved weights
        # Tokens of the longest text that are a slot each, in all heads.
        self.tokens_kept = min((made.single_tokens for made in own), default=0)
        if taps:
            self.convolution = ShortConvolution(self.context_size, taps, causal=causal, axes=len(tile or (1,)))
        self.memory_bias = None
        if window is not None and not self.covers_all:
            self.memory_bias = nn.Parameter(torch.empty(num_heads))
        LinformerAttention.reset_parameters(self)
        _move(self, device, dtype)

    def _meet_latents(self, *, has_order: bool) -> None:
        """Make queries by the layer of keys where slots are latents, and both layers have one shape."""
        alike = self.context_size == self.hidden_size and self.num_key_value_heads == self.num_heads
        self.meets_latents = not has_order
        self.takes_by_key = self.meets_latents and alike
        if self.takes_by_key and "query" in self._modules:
            self._modules["query"] = None

    def reset_parameters(self) -> None:
        """Draw the parameters of this module anew, not those of the modules in it."""
        if self.memory_bias is not None:
            nn.init.zeros_(self.memory_bias)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        grid: tuple[int, ...] | None = None,
        shared: Shared = NOTHING_SHARED,
        output_attentions: bool = False,
        residual: Tensor | None = None,
    ) -> Any:
        """Attend: hidden_states (B, n, D) of n <= max_length tokens; ``attention_mask`` (B, n), 1 text and 0 padding.

        ``key_padding_mask`` (B, n) instead: torch's convention, True for padding. A bool ``attention_mask`` that means
        this cannot be told from one that means text.
        ``global_attention_mask`` (B, n), Longformer's name: 1 for tokens that every query sees exactly, however far, at
        most ``max_global_tokens`` (256, an attribute) of a text; they themselves see what others see.
        ``context`` (B, m, context_size): attended to in place of the input, under ``context_mask`` (B, m), 1 text.
        ``grid``: tokens along each axis, of an input (B, s + H W, D) to a layer with ``tile``; masks have the
        shape of the input without D.
        ``shared``: what a model hands to all its layers. ``residual``: added to the output, of its shape.
        Returns the input's shape, and with ``output_attentions`` a pair of that and the weights. Raises InputError on
        an input of another shape or length or a mask of another shape, and ConfigurationError where the window is too
        small for a bias by distance, or a ``global_attention_mask`` comes with causal=True, a grid or a context.
        """
        mask = attention_mask if key_padding_mask is None else mask_of_text(attention_mask, key_padding_mask)
        shared = shared if context is None else shared._replace(context=context, context_mask=context_mask)
        if getattr(hidden_states, "is_nested", True):  # or a list, an array: it has no shape to look at
            check_tensors(hidden_states=hidden_states)
        if global_attention_mask is not None:
            marks = checked_marks(global_attention_mask, hidden_states.shape[0], hidden_states.shape[1])
            shared = shared._replace(global_attention_mask=marks)
        marked = shared.global_attention_mask is not None
        if marked or shared.distance_bias is not None or shared.query_mask is not None:
            self.check_shared(shared, hidden_states)
        if shared.cache is not None:
            out, weights = attend_cached(self, hidden_states, mask, shared=shared, output_attentions=output_attentions)
        else:
            out, weights = self.attend(hidden_states, mask, grid, shared, output_attentions=output_attentions)
        out = self.output(out) if residual is None else add_to(residual, self.output, out)  # (B, n, D)
        return (out, weights) if output_attentions else out

    def attend(
        self, hidden_states: Tensor, mask: Tensor | None, grid: tuple[int, ...] | None, shared: Shared,
        *, output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Attention before the output projection: (B, n, h d), and the weights or None; arguments as in ``forward``."""
        shape, sizes, order = hidden_states.shape, None, None
        if self.grid is not None:
            sizes = shared.grid or self.grid.extents(shape, grid)
            hidden_states, mask = hidden_states.flatten(1, -2), of_flat_grid(mask, shape)
        if shared.context is None:
            x, mask = self.prepare(hidden_states, mask)  # (B, n, D), zeros on padding
        else:
            x, mask = self.prepare_context(hidden_states, shared)  # (B, m, .)
        if not torch.compiler.is_compiling() and not x.shape[1]:
            return self.attend_nothing(hidden_states, shape)
        x = self.convolve(x, mask, sizes)
        if sizes is not None:
            order = arrangement(cast(Grid, self.grid), sizes, x.device)
            x, mask, shared = order.arranged(x, mask, shared)
        query = self.queries_of(hidden_states, x, mask, shared)  # (B, h, n, d)
        options: Any = {
            "dropout": self.dropout * self.training,
            "distance_bias": shared.distance_bias,
            "output_attentions": output_attentions,
        }
        if self.window is None or self.reaches_all(x.shape[1], output_attentions=output_attentions):
            slots = self.shorten(x, mask, shared)  # keys and values (B, h, k, d)
            out, weights = slot_attention(query, slots.key, slots.value, slot_mask=slots.usable, **options)
        else:
            out, weights = self.attend_near_and_far(query, x, mask, shared, order, **options)
        if order is None:
            return out.transpose(1, 2).flatten(2), weights  # (B, n, h d)
        out, weights = order.restored(out), None if weights is None else order.restored(weights)
        return out.transpose(1, 2).flatten(2).unflatten(1, shape[1:-1]), weights

    def attend_near_and_far(
        self, query: Tensor, x: Tensor, mask: Tensor | None, shared: Shared, order: Arrangement | None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Context (B, h, n, d) of ``query`` (B, h, n, d) over x (B, n, D): near tokens exactly, far ones in slots; and
        the weights or None. ``order``: of a grid's tokens; ``options``: of ``windowed_attention``.
        """
        key, value = self.keys_and_values(x, mask, shared)  # (B, h, n, d) each
        options |= self.near_and_far(mask, x, shared)
        if order is not None:
            options["neighbours"] = order.neighbours
        if len(self.head_groups) > 1:
            return attend_by_groups(self.grouped_heads(), query, key, value, x, **options)
        # Formed where a kernel reads them.
        slots = partial(self.shorten_heads, key, value, mask, x, shared, options["exact"])
        return windowed_attention(query, key, value, slots, **options)

    def prepare_context(self, hidden_states: Tensor, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """The context (B, m, .) in ``shared`` and its mask, as ``prepare`` does it, for queries of hidden_states.

        Raises InputError where the input and its context do not match, ConfigurationError for a layer that takes none.
        """
        context, value = cast(Tensor, shared.context), shared.value
        if self.window is not None or self.grid is not None:
            raise ConfigurationError(
                "a context is attended to through its slots only: make the layer with attention_window=None, "
                f"causal=False and tile=None, not attention_window={self.window}, causal={self.causal}"
            )
        self.check_shape(hidden_states, "hidden_states")
        self.check_shape(context, "context")
        if len(context) != len(hidden_states) or (value is not None and value.shape[:2] != context.shape[:2]):
            other = "hidden_states" if value is None else "hidden_states and value"
            raise InputError(f"context (or key) {tuple(context.shape)} and {other} are of other batches or tokens")
        return self.prepare(context, shared.context_mask, name="context")

    def reaches_all(self, length: int, *, output_attentions: bool = False) -> bool:
        """Whether every query sees every token of ``length`` exactly, so that nothing is shortened.

        A compiler is not asked: that would tie its graph to some lengths.
        """
        if self.covers_all:
            return True
        if self.causal or torch.compiler.is_compiling() or (output_attentions and self.window is not None):
            return False
        # Sinks have further slots, so that with them the slots are more than the tokens.
        windowless = 0 if self.sinks else self.tokens_kept
        most = windowless if self.window is None else 2 * self.window
        return length <= most and not (self.training and in_process_group())

    def shorten(self, x: Tensor, mask: Tensor | None, shared: Shared) -> Slots:
        """Keys and values of the slots, (B, h, k, d) each, from x (B, n, D); of all tokens where ``reaches_all``.

        x is shortened before W_K and W_V where nothing stands between (no rotation, no adapter, no other source of
        values); else keys and values are.
        """
        if self.reaches_all(x.shape[1]):
            key, value = self.keys_and_values(x, None, shared)
            return Slots(key, value, None if mask is None else mask[:, None], None)
        if len(self.head_groups) > 1:
            sides = self.keys_and_values(x, mask, shared)
            return slots_of_groups(self.grouped_heads(), *sides, mask, x, self.exact_tokens(mask, x, shared))
        if shared.rotation is None and shared.value is None and are_affine(self.key, self.value):
            sides = (self.key, self.value) if self.num_key_value_heads == self.num_heads else self._repeated_sides()
            exact = self.exact_tokens(mask, x, shared)
            return self.projection_for(shared).from_hidden(x, mask, *sides, self.num_heads, exact)
        sides = self.keys_and_values(x, mask, shared)
        return self.shorten_heads(*sides, mask, x, shared, self.exact_tokens(mask, x, shared))

    def shorten_heads(
        self, key: Tensor, value: Tensor, mask: Tensor | None, x: Tensor, shared: Shared, exact: Exact | None
    ) -> Slots:
        """Slots from keys and values (B, h, n, d) of x (B, n, D), and of the ``exact`` tokens."""
        return self.projection_for(shared).from_heads(key.transpose(1, 2), value.transpose(1, 2), mask, x, exact)

    def exact_tokens(self, mask: Tensor | None, x: Tensor, shared: Shared) -> Exact | None:
        """The tokens of x (B, n, D) that every query sees exactly; ``mask`` bool (B, n) or None."""
        marked = shared.global_attention_mask
        where: Any = {"batch": x.shape[0], "length": x.shape[1], "device": x.device, "sinks": self.sinks}
        if marked is not None:
            return cached_in_forward(marked_tokens, marked, mask, most=self.max_global_tokens, **where)
        return cached_in_forward(leading_tokens, mask, **where) if self.sinks else None

    def near_and_far(self, mask: Tensor | None, x: Tensor, shared: Shared = NOTHING_SHARED) -> dict[str, Any]:
        """Options of ``windowed_attention`` for x (B, n, D)."""
        known = not (self.causal or torch.compiler.is_compiling())  # see ``reaches_all``
        return {
            "window": self.window,
            "mask": mask,
            "memory_bias": self.memory_bias,
            "memory_budget": self.memory_budget,
            "exact": self.exact_tokens(mask, x, shared),
            "causal": self.causal,
            "selected": self.selected_slots,
            "slots_are_tokens": known and x.shape[1] <= self.tokens_kept,
        }

    def projection_for(self, shared: Shared) -> SequenceProjection:
        """The module that shortens keys and values: of this layer, or of all. Raises ConfigurationError where a shared
        one is missing or too much.
        """
        projection = shared.projection
        if (projection is not None) != (self.projection_sharing == "layerwise"):
            raise ConfigurationError(
                "projection_sharing='layerwise' needs the projection of all layers: forward(..., shared="
                "Shared(projection=make_projection(...)))"
                if projection is None
                else f"a shared projection is for projection_sharing='layerwise', not {self.projection_sharing!r}"
            )
        return self.groups[0] if projection is None else projection  # ty: ignore[invalid-explicit-return]  a list of modules

    def _own_projections(self) -> list[SequenceProjection]:
        """A projection for each head group; none where all layers share one, or every query sees every token."""
        if self.projection_sharing == "layerwise" or self.covers_all:
            return []
        return [self.new_projection(heads) for heads in self.head_groups]

    def grouped_heads(self) -> list[Group]:
        """Heads of one k, and their projection, for each k."""
        return list(zip(self.head_groups, cast("list[SequenceProjection]", [*self.groups]), strict=True))

    def new_projection(self, heads: list[int]) -> SequenceProjection:
        """A projection, not this layer's own, for ``heads`` of one k."""
        return self._make_projection(heads=len(heads), slots=self._slots[heads[0]])

    def check_shared(self, shared: Shared, hidden_states: Tensor) -> None:
        """Raise ConfigurationError where the window is too small for a bias by distance, or tokens are marked in a
        layer that takes no marks, and InputError for tokens that nobody attends to in hidden_states (B, n, D) of more
        tokens than a window reaches.
        """
        marked = shared.global_attention_mask is not None
        if marked and (self.causal or self.grid is not None or shared.context is not None):
            raise ConfigurationError(
                "global_attention_mask marks tokens of a text that is read both ways: make the layer with causal=False "
                "and tile=None, and give no context, or leave the mask out"
            )
        if self.grid is not None:
            raise ConfigurationError(
                "a layer with tile= takes grids only, without relative positions, which are of a text"
            )
        if shared.distance_bias is not None and self.max_length is not None:
            check_reach(shared.distance_bias.shape[1] // 2, window=self.window, max_length=self.max_length)
        windowed = self.window is not None and not self.reaches_all(hidden_states.shape[1])
        if windowed and shared.query_mask is not None:
            raise InputError(
                f"tokens that are not read (query_expansion with attend=False) need a text of at most 2 x "
                f"attention_window={self.window} tokens, not n={hidden_states.shape[1]}: shorten the query, or convert "
                "with a wider window"
            )

    def streams(self, length: int) -> bool:
        """Whether a text of ``length`` tokens may be attended some tokens at a time, from slots and neighbours."""
        plain = self.grid is None and len(self.head_groups) == 1 and not self.causal
        return plain and not self.reaches_all(length)

    def _repeated_sides(self) -> list[Weights]:
        """Weights of keys and values with the rows of each head as often as heads of queries share it."""
        times = self.num_heads // self.num_key_value_heads
        key = repeated_heads(self.key, self.num_key_value_heads, times)
        shares = self.value is self.key
        return [key, key if shares else repeated_heads(self.value, self.num_key_value_heads, times)]
