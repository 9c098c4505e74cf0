"""Base of every attention layer: queries, keys and values by head, from four projections, and checks of its input.

Axes: B batch, n tokens, D hidden, h heads, g heads of keys and values, d head dimension.
"""

from abc import ABC
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform.errors import InputError
from longform.functional.execution import autocasts
from longform.functional.latent import unit_rms
from longform.functional.masks import blank_padding, check_tensors, checked_mask
from longform.functional.positions.rotary import Rotation, rotated
from longform.layers.linear import are_affine
from longform.layers.options import check_key_value_heads, head_size
from longform.layers.packed_batch import Documents, Group
from longform.layers.sequence_projection import SequenceProjection
from longform.layers.short_convolution import ShortConvolution


class Shared(NamedTuple):
    """Tensors and modules that a model hands to the attention of all its layers.

    ``projection``: E = F of all layers, for sharing "layerwise". ``rotation``: queries and keys are turned by it, keys
    before they are shortened, see RotaryPositions. ``distance_bias`` (h, 2 r + 1): added to the logits by the distance
    from query to key, see RelativeAttentionBias. ``query_mask`` bool (B, n): tokens that attend: the text, and tokens
    that nobody attends to, in texts that every query sees as a whole. ``global_attention_mask`` bool (B, n): tokens
    that every query sees exactly. ``grid``: tokens along each axis of a grid.
    ``cache``: what a causal layer knows of earlier tokens, a LayerCache. ``query`` (B, n, D) and ``value`` (B, n, .):
    what queries and values are made of, where that is not what keys are. ``context`` (B, m, .) under ``context_mask``
    (B, m), 1 text: attended to in place of the input. ``documents``: those of a batch without padding.
    """

    projection: SequenceProjection | None = None
    rotation: Rotation | None = None
    distance_bias: Tensor | None = None
    query_mask: Tensor | None = None
    grid: tuple[int, ...] | None = None
    global_attention_mask: Tensor | None = None
    cache: Any = None
    query: Tensor | None = None
    value: Tensor | None = None
    context: Tensor | None = None
    context_mask: Tensor | None = None
    documents: Documents | None = None

    def of_group(self, group: Group) -> "Shared":
        """Copy for the documents of one group, with marks (g, n) of their tokens and angles (n, r) of places."""
        marks, rotation = self.global_attention_mask, self.rotation
        return self._replace(
            documents=None,
            global_attention_mask=None if marks is None else group.of(marks),
            rotation=None if rotation is None else rotation.at(slice(group.tokens.shape[1])),
        )


NOTHING_SHARED = Shared()


class SelfAttention(nn.Module, ABC):
    """Queries, keys and values by head; ``hidden_size`` D and ``num_heads`` h of ``head_dim`` d (None: D / h).

    ``num_key_value_heads`` g <= h of keys and values, each for h / g heads of queries; ``bias``: of the four
    projections; ``dropout``: of attention weights; ``max_length``: the most tokens, or None; ``context_size``: features
    of what keys and values are made of, None for D.

    Raises ConfigurationError where g does not divide h, and without ``head_dim`` where h does not divide D.
    """

    def __init__(
        self, hidden_size: int, num_heads: int, *, head_dim: int | None, num_key_value_heads: int | None,
        max_length: int | None, bias: bool, dropout: float, context_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_key_value_heads(num_heads, num_key_value_heads)
        self.hidden_size, self.num_heads, self.max_length = hidden_size, num_heads, max_length
        self.dropout = dropout
        self.num_key_value_heads = num_key_value_heads or num_heads
        self.head_dim = head_size(hidden_size, num_heads, head_dim)
        self.context_size = context_size or hidden_size
        self.make_features(bias=bias)
        self.convolution: ShortConvolution | None = None
        self.meets_latents = self.takes_by_key = False

    def make_features(self, *, bias: bool) -> None:
        """Make the four projections of features."""
        width, narrow = (self.head_dim * heads for heads in (self.num_heads, self.num_key_value_heads))
        self.query = nn.Linear(self.hidden_size, width, bias=bias)
        self.key, self.value = (nn.Linear(self.context_size, narrow, bias=bias) for _ in range(2))
        self.output = nn.Linear(width, self.hidden_size, bias=bias)

    @property
    def dropout_rate(self) -> float:
        """Share of attention weights that are dropped: none in inference."""
        return self.dropout if self.training else 0.0

    def prepare(
        self, hidden_states: Tensor, mask: Tensor | None, *, name: str = "hidden_states"
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states (B, n, D) with zeros on padding, and a bool mask (B, n) or None.

        Where products under autocast would round them, they are rounded once. ``name``: of the input in messages,
        "context" where it is that. Raises InputError on another rank or width, on a longer input and on a mask of
        another shape.
        """
        width = self.context_size if name == "context" else self.hidden_size
        if getattr(hidden_states, "is_nested", True) or hidden_states.shape[2:] != (width,):  # or a list, an array
            self.check_shape(hidden_states, name)
        hidden = hidden_states
        batch, length, _ = hidden.shape
        if self.max_length is not None and length > self.max_length:
            raise InputError(f"the input has n={length} tokens, this layer takes at most max_length={self.max_length}")
        if mask is not None:
            if getattr(mask, "dtype", None) != torch.bool or mask.is_nested or mask.shape != (batch, length):
                mask = checked_mask(mask, batch=batch, length=length)
            hidden = blank_padding(hidden, mask)
        if hidden.dtype == torch.float32 and torch._C._is_any_autocast_enabled():
            hidden = self.rounded(hidden)
        return hidden, mask

    def rounded(self, hidden: Tensor) -> Tensor:
        """Hidden states (B, n, D) in autocast's dtype, where only products read them, which would round them."""
        layers = (self.key, self.value) if self.takes_by_key else (self.query, self.key, self.value)
        if not (autocasts(hidden) and are_affine(*layers)):
            return hidden
        return hidden.to(torch.get_autocast_dtype(hidden.device.type))

    def convolve(self, x: Tensor, mask: Tensor | None, grid: tuple[int, ...] | None = None) -> Tensor:
        """x (B, n, D), zeros on padding, after the short convolution, if there is one: (B, n, D).

        ``grid``: tokens along each axis, of a grid.
        """
        return x if self.convolution is None else self.convolution(x, mask, grid)

    def check_shape(self, x: Tensor, name: str) -> None:
        """Raise InputError unless ``x`` is (B, n, width), by the width of hidden states or of a context."""
        check_tensors(**{name: x})
        width = self.context_size if name == "context" else self.hidden_size
        if x.dim() != 3 or x.shape[2] != width:
            what = "context_size" if name == "context" else "hidden_size"
            more = "; a grid (B, H, W, D) needs a layer with tile=" if x.dim() > 3 else ""
            if x.dim() > 2 and x.shape[1] == width:
                more += "; channels stand last here: x.movedim(1, -1)"
            raise InputError(
                f"{name} has shape {tuple(x.shape)}, expected (batch, tokens, {what}) = (B, n, {width}){more}"
            )

    def attend_nothing(self, hidden_states: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Attention of hidden_states (B, n, D), of ``shape`` before, to no tokens: zeros, and weights (B, h, n, 0)."""
        batch, length = hidden_states.shape[:2]
        out = hidden_states.new_zeros(*shape[:-1], self.num_heads * self.head_dim)
        return out, hidden_states.new_zeros(batch, self.num_heads, length, 0)

    def queries_of(self, hidden_states: Tensor, x: Tensor, mask: Tensor | None, shared: Shared) -> Tensor:
        """Queries of every token, (B, h, n, d): of x (B, n, D), as keys are, but where ``shared`` says otherwise."""
        if shared.context is not None:
            return self.queries(hidden_states.to(x.dtype))
        if shared.query_mask is not None:
            x = self.convolve(*self.prepare(hidden_states, shared.query_mask))
        elif shared.query is not None:
            x = self.convolve(*self.prepare(shared.query, mask))
        return self.queries(x, shared.rotation)

    def queries(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        """x (B, n, D) -> (B, h, n, d), turned by ``rotation``; of a mean square of one where slots are latents."""
        layer = self.key if self.takes_by_key else self.query
        query = layer(x).unflatten(2, (self.num_heads, -1))
        if self.meets_latents:
            query = unit_rms(query)
        return (query if rotation is None else rotated(query, rotation)).transpose(1, 2)

    def keys_and_values(self, x: Tensor, mask: Tensor | None, shared: Shared = NOTHING_SHARED) -> tuple[Tensor, Tensor]:
        """Keys and values of every token of x (B, n, D), (B, h, n, d) each, zeros on padding; keys are turned by the
        rotation in ``shared``, and values made of its ``value``, if they are there.
        """
        if shared.value is not None:
            keys, values = self.key(x), self.value(self.value_source(shared.value, mask))
        elif self.value is self.key:  # share_kv
            keys = values = self.key(x)
        else:
            keys, values = self.key(x), self.value(x)
        return self._by_head(keys, mask, shared.rotation), self._by_head(values, mask)

    def value_source(self, value: Tensor, mask: Tensor | None) -> Tensor:
        """The source of values, (B, n, .), zeros on padding, and convolved where it is as wide as that of keys."""
        if value.shape[2] != self.context_size:
            return blank_padding(value, mask)
        return self.convolve(*self.prepare(value, mask, name="context"))

    def _by_head(self, x: Tensor, mask: Tensor | None, rotation: Rotation | None = None) -> Tensor:
        """x (B, n, g d), each of g heads for its heads of queries: (B, h, n, d)."""
        if mask is not None:
            x = blank_padding(x, mask)
        x = x.unflatten(2, (self.num_key_value_heads, -1))
        if rotation is not None:
            x = rotated(x, rotation)
        times = self.num_heads // self.num_key_value_heads
        return (x if times == 1 else x.repeat_interleave(times, dim=2)).transpose(1, 2)
