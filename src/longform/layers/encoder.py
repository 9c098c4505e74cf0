"""An encoder stack over vectors, and the part of it that every stack of blocks has.

Axes: B batch, n tokens, D hidden, h heads, L layers.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from longform.errors import ConfigurationError, InputError
from longform.functional.execution import one_pass
from longform.functional.masks import (
    blank_padding,
    check_pair_mask,
    check_tensors,
    checked_marks,
    checked_mask,
    mask_of_text,
)
from longform.functional.positions.rotary import plain_frequencies
from longform.functional.positions.tables import sinusoidal_positions
from longform.layers.attention import LinformerAttention
from longform.layers.block import Block, FeedForward, make_norm
from longform.layers.causal_cache import CausalCache
from longform.layers.embeddings import PositionEmbedding, RelativeAttentionBias, RotaryPositions
from longform.layers.names import named
from longform.layers.options import check_choice
from longform.layers.packed_batch import check_alone, documents_of, is_packed, unpacked
from longform.layers.self_attention import Shared
from longform.layers.sequence_projection import SequenceProjection
from longform.layers.streaming import can_run_in_parts

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}
POSITIONS = ("learned", "sine", "rotary")
WINDOW = 64  # tokens of a causal window where nothing is said


class EncoderOutput(NamedTuple):
    """``last_hidden_state`` (B, n, D); ``hidden_states``: the input of each layer, then that; ``attentions``: weights
    of each layer, see LinformerAttention; None where they were not asked for.
    """

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] | None
    attentions: tuple[Tensor | None, ...] | None


class Stack(nn.Module):
    """Blocks one after the other, and what they share: relative or rotary positions, and the projection where it is
    shared layerwise, which is made here.

    ``rotary``: positions of layers by their ``layer_type``. ``final_norm``: after the last layer. ``recompute``:
    gradients are formed by computing each layer again.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        *,
        relative_attention_bias: RelativeAttentionBias | None = None,
        rotary: Mapping[str, RotaryPositions] | None = None,
        final_norm: nn.Module | None = None,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.shared_projection = _shared_projection(self.layers)
        self.relative_attention_bias = relative_attention_bias
        self.rotary = nn.ModuleDict(rotary)
        self.final_norm = final_norm
        self.recompute = recompute

    def run(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        *,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        positions: Tensor | None = None,
        overwrite: bool = False,
        cache: CausalCache | None = None,
        **shared: Any,
    ) -> EncoderOutput:
        """hidden (B, n, D) with padding blanked, checked bool mask (B, n) or None.

        ``positions`` (n), (1, n) or (B, n), where they do not count from 0; ``overwrite``: nobody needs ``hidden``
        afterwards; ``cache``: earlier tokens, of causal layers; ``shared``: more of what all layers are given.
        """
        by_type, states, attentions = self._shared(hidden, positions, shared), [], []
        call, apart = self._way_to_call(cache), _differentiable(by_type["full_attention"])
        in_parts = not _are_whole(shared, weights=output_attentions) and can_run_in_parts(self, hidden)
        with one_pass():
            for index, layer in enumerate(self.layers):
                if output_hidden_states:  # otherwise one layer's states at a time are alive
                    states.append(hidden)
                own = by_type[getattr(layer, "layer_type", "full_attention")]
                if cache is not None:
                    own = own._replace(cache=cache.layers[index])
                if in_parts and isinstance(layer, Block):
                    hidden = layer.in_parts(hidden, mask, own, in_place=overwrite and not output_hidden_states)
                else:
                    hidden, weights = call(layer, hidden, mask, own, output_attentions, *apart)
                    attentions.append(weights)
                overwrite = True
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return EncoderOutput(
            hidden,
            (*states, hidden) if output_hidden_states else None,
            tuple(attentions) if output_attentions else None,
        )

    def _way_to_call(self, cache: CausalCache | None) -> Callable[..., Any]:
        """The function that calls a layer: one that computes it again in the backward pass, where that is asked for.

        Raises InputError where a layer would read its part of the ``cache`` again then.
        """
        trained = cache is not None and self.training and torch.is_grad_enabled()
        if trained and (self.recompute or any(getattr(x, "gradient_checkpointing", False) for x in self.layers)):
            raise InputError(
                "gradient checkpointing computes layers again, which would read the same tokens into the cache twice: "
                "leave the cache out (use_cache=False), or the checkpointing, or call under torch.no_grad()"
            )
        return _recomputed if self.recompute and self.training else nn.Module.__call__

    def _shared(self, hidden: Tensor, positions: Tensor | None, more: dict[str, Any]) -> dict[str, Shared]:
        """Tensors that the layers of each type are given for hidden (B, n, D)."""
        if positions is None and self.rotary:
            positions = torch.arange(hidden.shape[1], device=hidden.device)
        distances = None if self.relative_attention_bias is None else self.relative_attention_bias()
        turned = {kind: rotary(positions) for kind, rotary in self.rotary.items()}
        return {
            "full_attention": Shared(self.shared_projection, turned.get("full_attention"), distances, **more),
            "sliding_attention": Shared(None, turned.get("sliding_attention"), distances, **more),
        }


def _differentiable(shared: Shared) -> tuple[Tensor, ...]:
    """Tensors in ``shared`` that need gradients: re-entrant checkpointing knows those of its arguments alone."""
    return () if shared.distance_bias is None else (shared.distance_bias,)


def _are_whole(shared: dict[str, Any], *, weights: bool) -> bool:
    """Whether what all layers are given, or their ``weights`` that are asked for, is of whole texts."""
    return weights or "context" in shared or any(shared.get(name) is not None for name in ("query_mask", "documents"))


def _recomputed(layer: nn.Module, *inputs: Any) -> Any:
    """``layer`` of its ``inputs``, its activations computed again in the backward pass."""
    return checkpoint(layer, *inputs, use_reentrant=False)


def _activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    check_choice("activation", activation, tuple(ACTIVATIONS))
    return ACTIVATIONS[activation]()


def _check_positions(positions: str | None, max_length: int | None) -> None:
    if positions is not None:
        check_choice("positions", positions, POSITIONS)
    if positions == "learned" and max_length is None:
        raise ConfigurationError("positions='learned' needs max_length, the rows of their table; or use 'sine'")


def _with_window(attention: dict[str, Any], *, causal: bool) -> dict[str, Any]:
    """Options of attention; a causal encoder has a window by default."""
    if causal and attention.get("attention_window") is None:
        return attention | {"attention_window": WINDOW}
    return attention


def _rotary(positions: str | None, features: int) -> dict[str, RotaryPositions] | None:
    if positions != "rotary":
        return None
    return {"full_attention": RotaryPositions(plain_frequencies(features))}


def _each(tensors: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """``function`` of a tensor, or of each of several; None stays."""
    if isinstance(tensors, tuple):
        return tuple(_each(x, function) for x in tensors)
    return None if tensors is None else function(tensors)


def _with_batch(x: Any, batch: int | None) -> Any:
    """x with the batch, its axis number ``batch``, in front; None: there is none, x is one text. None stays."""
    if x is None or batch == 0:
        return x
    if batch is None:
        return x[None]
    return x if x.dim() < 2 else x.transpose(0, batch)  # one axis is refused where shapes are checked


def _without_batch(x: Tensor, batch: int | None) -> Tensor:
    """``_with_batch`` undone."""
    return x[0] if batch is None else x.transpose(0, batch)


def _shared_projection(layers: nn.ModuleList) -> SequenceProjection | None:
    """E = F of all ``layers``, where they share it."""
    for layer in layers:
        attention = getattr(layer, "attention", None)
        shares = isinstance(attention, LinformerAttention) and attention.projection_sharing == "layerwise"
        if shares and not attention.covers_all:
            return attention.new_projection(attention.head_groups[0])
    return None


class LinformerEncoder(Stack):
    """A Transformer encoder over vectors (B, n, D) -> (B, n, D), in time and memory O(n): an image's patches, a signal,
    genes, or the embeddings of tokens.

    A layer is x + attention(norm(x)), then x + feed_forward(norm(x)), with the attention of LinformerAttention, whose
    docstring has the formula. By default a slot stands for a run of 4 tokens: their mean weighted by content, after a
    convolution over 5 tokens. That learned more than a learned E ("linear") where both were measured, see
    docs/concepts/projections.md; the paper's layer is ``projection="linear", projected_length=k``.

    Arguments:

    * ``hidden_size`` D, ``num_layers`` L, ``num_heads`` h; ``max_length`` N, or None for any length.
    * ``causal`` (which has a window of 64 tokens where none is given) and all of ``attention`` (projected_length,
      tokens_per_slot, projection, short_convolution, attention_window, tile, sink_tokens, head_dim, bias, ...): of
      LinformerAttention. ``projection_sharing="layerwise"`` is one E for all layers.
    * ``intermediate_size``: of the feed-forward part, None for 4 D. ``activation``: "gelu", "relu", "silu" or a
      function; ``gated``: GeGLU, SwiGLU.
    * ``pre_norm``: norms before attention and feed-forward, or after the sums; ``final_norm``: after the last layer,
      None for one with ``pre_norm``; ``norm``: "layer_norm" or "rms_norm", with ``norm_epsilon``.
    * ``dropout``: of both branches; ``attention_dropout``: of attention weights, None for ``dropout``.
    * ``positions``: None, "learned" (needs ``max_length``), "sine" or "rotary"; a grid counts along its rows.
    * ``batch_first``: False for inputs and outputs (n, B, D), as torch's modules have them.
    * ``gradient_checkpointing``: layers are computed again for their gradients.
    * ``device``, ``dtype``: of the parameters.

    Raises ConfigurationError for options that do not go together.
    """

    @named(LinformerAttention.__init__)
    def __init__(
        self,
        hidden_size: int,
        num_layers: int,
        num_heads: int,
        max_length: int | None = None,
        *,
        causal: bool = False,
        intermediate_size: int | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        gated: bool = False,
        pre_norm: bool = True,
        final_norm: bool | None = None,
        norm: str = "layer_norm",
        norm_epsilon: float = 1e-5,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        positions: str | None = None,
        batch_first: bool = True,
        gradient_checkpointing: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **attention: Any,
    ) -> None:
        _check_positions(positions, max_length)
        inside = _activation(activation)
        attention = _with_window(attention, causal=causal)
        make_attention = partial(
            LinformerAttention, hidden_size, num_heads, max_length=max_length, causal=causal,
            dropout=dropout if attention_dropout is None else attention_dropout, **attention,
        )  # fmt: skip
        make = partial(make_norm, norm, hidden_size, epsilon=norm_epsilon)
        make_feed_forward = partial(FeedForward, hidden_size, intermediate_size or 4 * hidden_size, inside, gated=gated)
        layers = [
            Block(make_attention(), make_feed_forward(), make(), make(), pre_norm=pre_norm, dropout=dropout)
            for _ in range(num_layers)
        ]
        rotary = _rotary(positions, attention.get("head_dim") or hidden_size // num_heads)
        final_norm = pre_norm if final_norm is None else final_norm
        last = make() if final_norm else None
        super().__init__(layers, rotary=rotary, final_norm=last, recompute=gradient_checkpointing)
        self.hidden_size, self.causal, self.sine = hidden_size, causal, positions == "sine"
        self.batch_first = batch_first
        self.positions = PositionEmbedding(max_length or 0, hidden_size) if positions == "learned" else None
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def _read(
        self, hidden: Tensor, mask: Tensor | None, cache: CausalCache | None, most: int | None
    ) -> tuple[Tensor | None, Tensor]:
        """The checked mask of hidden (B, n, D), and its places long (n), or (B, n) after those in the ``cache``."""
        if cache is None:
            batch, length, _ = hidden.shape
            return checked_mask(mask, batch=batch, length=length), torch.arange(length, device=hidden.device)
        if not self.causal:
            raise InputError("a cache is of an encoder with causal=True")
        mask, _, places = cache.read(mask, hidden, layers=len(self.layers), most=most)
        return mask, places

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool | None = None,
        global_attention_mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        grid: tuple[int, ...] | None = None,
        cache: CausalCache | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Any:
        """Encode hidden_states (B, n, D), or one text (n, D), or a grid, (B, H, W, D) or (B, s + H W, D) with
        ``grid`` (H, W); or texts of several lengths without padding, a nested tensor (B, n of each, D) of torch's
        layout "jagged", or (T, D) with ``cu_seqlens`` whole numbers (B + 1), where texts end among the T tokens, from
        0, as flash attention has them. ``max_seqlen``: the most tokens of one, needed where a graph is made.

        ``attention_mask`` (B, n): 1 for tokens, 0 for padding and what is missing, anywhere: places stay what they are;
        or ``key_padding_mask``, True for padding; of a grid in its shape. ``cache``: what a causal encoder has read
        before, see ``new_cache``; n may be 1.
        ``src_key_padding_mask``, ``mask``, ``is_causal``: as nn.TransformerEncoder has them; of masks of pairs (n, n)
        only the causal one, where the encoder is causal.
        ``global_attention_mask`` (B, n): 1 for tokens that every query sees exactly, see LinformerAttention.
        ``context`` (B, m, context_size): what every layer attends to in place of the input, under ``context_mask``
        (B, m), 1 for tokens.
        Returns a tensor of the input's shape, or an EncoderOutput of such where more is asked for. Raises InputError on
        other shapes and masks.
        """
        if is_packed(hidden_states, cu_seqlens):
            alone = attention_mask, key_padding_mask, src_key_padding_mask, mask, context, grid, cache
            check_alone(*alone, weights=output_attentions)
            return self._encode_packed(
                hidden_states, cu_seqlens, max_seqlen, global_attention_mask, keeps=output_hidden_states
            )
        check_tensors(hidden_states=hidden_states, context=context, context_mask=context_mask)
        padding = src_key_padding_mask if key_padding_mask is None else key_padding_mask
        text = mask_of_text(attention_mask, padding)
        one_text = hidden_states.dim() == 2
        batch = None if one_text else int(not self.batch_first)
        hidden_states, context = _with_batch(hidden_states, batch), _with_batch(context, batch)
        if one_text:
            text, context_mask, global_attention_mask = (
                _with_batch(x, None) for x in (text, context_mask, global_attention_mask)
            )
        check_pair_mask(mask, hidden_states, is_causal=is_causal, causal=self.causal)
        out = self._encode(
            hidden_states,
            text,
            grid,
            cache,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            marks=global_attention_mask,
            **({} if context is None else {"context": context, "context_mask": context_mask}),
        )
        if batch != 0:
            out = EncoderOutput(
                _each(out.last_hidden_state, partial(_without_batch, batch=batch)),
                _each(out.hidden_states, partial(_without_batch, batch=batch)),
                _each(out.attentions, partial(_without_batch, batch=None)) if one_text else out.attentions,
            )
        return out if output_hidden_states or output_attentions else out.last_hidden_state

    def _encode(
        self, hidden_states: Tensor, mask: Tensor | None, grid: tuple[int, ...] | None, cache: CausalCache | None,
        *, marks: Tensor | None, **options: Any,
    ) -> EncoderOutput:  # fmt: skip
        """``forward`` of a batch, under one ``mask`` of the input's shape without D; ``options``: of ``run``."""
        attention: Any = next((layer.attention for layer in self.layers), None)
        shape = hidden_states.shape
        tiles = getattr(attention, "grid", None)
        if tiles is not None:
            options["grid"] = tiles.extents(shape, grid)
            if len(shape) > 3:
                hidden_states, mask = hidden_states.flatten(1, -2), _each(mask, lambda x: x.flatten(1))
        if "context" in options and (self.rotary or cache is not None):
            raise ConfigurationError("a context has no places among the tokens: without positions='rotary' and a cache")
        if attention is not None:
            attention.check_shape(hidden_states, "hidden_states")
        mask, places = self._read(hidden_states, mask, cache, getattr(attention, "max_length", None))
        options["global_attention_mask"] = checked_marks(marks, *hidden_states.shape[:2])
        hidden = self._with_positions(blank_padding(hidden_states, mask), places, hidden_states.shape[1])
        out = self.run(hidden, mask, positions=places, cache=cache, **options)
        if len(shape) == 3:  # FSDP2 dislikes views
            return out
        last, states, attentions = out
        return EncoderOutput(last.view(shape), _each(states, lambda x: x.view(shape)), attentions)

    def _encode_packed(
        self, packed: Tensor, cu_seqlens: Tensor | None, max_seqlen: int | None, marks: Tensor | None, *, keeps: bool
    ) -> Any:
        """``forward`` of texts without padding; ``marks`` and what is returned have their form."""
        values, form = unpacked(packed, cu_seqlens)
        hidden = values[None]
        documents = documents_of(form.ends, hidden, max_seqlen=max_seqlen or form.longest)
        attention: Any = next((layer.attention for layer in self.layers), None)
        if attention is not None:
            attention.check_shape(hidden, "hidden_states")
            if attention.grid is not None:
                raise ConfigurationError("texts without padding are no grids: make the encoder with tile=None")
        hidden = self._with_positions(hidden, documents.places[None], documents.longest)
        if marks is not None:
            marks = checked_marks(form.values_of(marks)[None], 1, len(values))
        places = torch.arange(documents.longest, device=hidden.device)
        last, states, _ = self.run(
            hidden, None, positions=places, documents=documents, global_attention_mask=marks, output_hidden_states=keeps
        )
        found = form.packed(last[0])
        return found if states is None else EncoderOutput(found, tuple(form.packed(x[0]) for x in states), None)

    def new_cache(self) -> CausalCache:
        """An empty cache for ``forward``, of an encoder with causal=True."""
        return CausalCache(len(self.layers))

    def _with_positions(self, hidden: Tensor, places: Tensor, length: int) -> Tensor:
        """hidden (B, n, D) and the positions at ``places`` long (n) or (B, n), of texts of up to ``length`` tokens."""
        if self.positions is not None:
            if length > self.positions.num_embeddings:
                raise InputError(
                    f"the input has n={length} tokens, this encoder takes at most "
                    f"max_length={self.positions.num_embeddings}"
                )
            return hidden + self.positions(places)
        if not self.sine:
            return hidden
        return hidden + sinusoidal_positions(places, hidden.shape[2], deviation=0.5**0.5).to(hidden.dtype)
