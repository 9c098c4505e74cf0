"""The Linformer encoder of a configuration, for tokens: embeddings, layers, pooling.

Axes: B batch, n tokens, D hidden, h heads, L layers.
"""

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.utils.generic import can_return_tuple

from longform.errors import InputError
from longform.functional.masks import (
    TextFirst,
    begins_anew,
    blank_padding,
    check_one_text,
    check_tensors,
    checked_marks,
    checked_mask,
    moved,
    reading_mask,
    text_first,
    without_holes,
)
from longform.functional.pooling import pooled
from longform.functional.positions.rotary import plain_frequencies
from longform.layers.attention import LinformerAttention
from longform.layers.block import Block, FeedForward, make_norm
from longform.layers.causal_cache import CausalCache
from longform.layers.embeddings import Embeddings, RelativeAttentionBias, RotaryPositions
from longform.layers.encoder import Stack
from longform.layers.local_attention import LocalAttention
from longform.layers.options import OPTIONS, AttentionOptions
from longform.layers.packed_batch import Documents, documents_of
from longform.layers.streaming import can_run_in_parts
from longform.models.configuration_linformer import LinformerConfig

UNSERVED = (  # arguments in the forward of BERT and in transformers' attention
    "encoder_hidden_states", "encoder_attention_mask", "head_mask", "cross_attn_head_mask",
)  # fmt: skip
PACKED = ("cu_seq_lens_k", "max_length_k", "seq_idx")  # with cu_seq_lens_q, which says what they say


def make_attention(
    config: LinformerConfig, options: AttentionOptions, layer_type: str = "full_attention"
) -> LinformerAttention | LocalAttention:
    """The attention of one layer with these ``options``; "sliding_attention" has a window and no slots."""
    shared: Any = {
        "max_length": config.max_position_embeddings,
        "head_dim": config.head_dim,
        "num_key_value_heads": config.num_key_value_heads,
        "dropout": config.attention_probs_dropout_prob,
        "bias": config.attention_bias,
    }
    if layer_type == "sliding_attention":
        assert config.sliding_window is not None
        return LocalAttention(config.hidden_size, config.num_attention_heads, reach=config.sliding_window, **shared)
    return LinformerAttention(
        config.hidden_size,
        config.num_attention_heads,
        **{name: getattr(options, name) for name in OPTIONS},
        causal=config.causal,
        **shared,
    )


def norm_of(config: LinformerConfig, size: int | None = None) -> nn.Module:
    """A norm of the configuration's kind, over ``hidden_size`` features where no other ``size`` is given."""
    size = size or config.hidden_size
    return make_norm(config.norm_type, size, epsilon=config.layer_norm_eps, bias=config.norm_bias)


def activation_of(name: str) -> nn.Module:
    """The activation of Hugging Face's name. The usual one is torch's: the table takes seconds to be imported."""
    if name == "gelu":
        return nn.GELU()
    from transformers.activations import ACT2FN

    return ACT2FN[name]


class ModelLayer(Block):
    """A Transformer block of a configuration."""

    def __init__(self, config: LinformerConfig, index: int) -> None:
        kind = config.kinds_of_layers()[index]
        attention = make_attention(config, config.layer_options()[index], kind)
        skips = config.skip_first_prenorm and index == 0
        feed_forward = FeedForward(
            config.hidden_size,
            config.intermediate_size,
            activation_of(config.hidden_act),
            config.chunk_size_feed_forward,
            gated=config.is_gated_act,
            bias=config.mlp_bias,
        )
        super().__init__(
            attention,
            feed_forward,
            nn.Identity() if skips else norm_of(config),
            norm_of(config),
            pre_norm=config.normalization == "pre",
            dropout=config.hidden_dropout_prob,
        )
        self.layer_type = kind


def rotary_positions(config: PreTrainedConfig, layer_type: str) -> RotaryPositions:
    """Rotary positions of layers of ``layer_type``, which may have other rope_parameters.

    "default" turns the pair i of r by rope_theta^(-i / r) radians a token; the other kinds are Hugging Face's.
    """
    nested = layer_type in config.rope_parameters
    parameters: dict[str, Any] = config.rope_parameters[layer_type] if nested else config.rope_parameters
    if parameters["rope_type"] != "default":
        make, shown = ROPE_INIT_FUNCTIONS[parameters["rope_type"]], copy.copy(config)
        shown.head_dim = config.head_size  # some of them compute with None
        frequencies, scaling = make(shown, torch.device("cpu"), layer_type=layer_type if nested else None)
        return RotaryPositions(tuple(frequencies.tolist()), scaling=scaling)
    features = int(config.head_size * parameters.get("partial_rotary_factor", 1.0))
    return RotaryPositions(plain_frequencies(features, parameters["rope_theta"]))


class ModelEncoder(Stack):
    """The layers of a configuration, of class ``layer``; layers of one type have the same rotary positions."""

    def __init__(self, config: LinformerConfig, layer: type[ModelLayer] = ModelLayer) -> None:
        buckets, relative = config.relative_attention_num_buckets, None
        if buckets is not None:
            relative = RelativeAttentionBias(
                buckets, config.num_attention_heads, max_distance=config.relative_attention_max_distance
            )
        turned = () if config.rope_parameters is None else dict.fromkeys(config.kinds_of_layers())
        super().__init__(
            (layer(config, index) for index in range(config.num_hidden_layers)),
            relative_attention_bias=relative,
            rotary={kind: rotary_positions(config, kind) for kind in turned},
            final_norm=norm_of(config) if config.normalization == "pre" else None,
        )

    def forward(self, hidden: Tensor, mask: Tensor | None, **options: Any) -> BaseModelOutput:
        """See Stack.run."""
        return BaseModelOutput(**self.run(hidden, mask, **options)._asdict())


class Pooling(nn.Module):
    """One vector of the hidden states of all tokens, of a ``kind`` of longform.functional.pooling; no parameters."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """hidden (B, n, D), bool mask (B, n) or None -> (B, D), or (B, 2 D) where the kind names two."""
        return pooled(hidden, mask, kind=self.kind)

    def extra_repr(self) -> str:
        """The kind, for print(model)."""
        return self.kind


class Pooler(nn.Module):
    """BERT's pooler: tanh of a dense layer on the first token."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.first = Pooling("cls")
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, D)."""
        return torch.tanh(self.dense(self.first(hidden, None)))


def continues_text(cache: object) -> bool:
    """Whether ``cache`` has read the beginning of the texts, so that the input is a later piece of them."""
    return isinstance(cache, CausalCache) and cache.get_seq_length() > 0


def _all_moved(there: Tensor, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Each tensor with its tokens in the places ``there``."""
    return tuple(None if x is None else moved(x, there) for x in tensors)


def _check_numbers(tokens: Tensor, **given: Tensor | None) -> None:
    """Raise InputError unless each of ``given`` is whole numbers (n), (1, n) or (B, n) of ``tokens`` (B, n, ...)."""
    batch, length = tokens.shape[:2]
    check_tensors(**given)
    for name, x in given.items():
        if x is None:
            continue
        whole = not (x.is_floating_point() or x.dtype == torch.bool)
        if (
            not whole
            or x.dim() not in (1, 2)
            or x.shape[-1] != length
            or (x.dim() == 2 and x.shape[0] not in (1, batch))
        ):
            raise InputError(
                f"{name} is {x.dtype} of shape {tuple(x.shape)}, expected whole numbers of shape ({batch}, {length}), "
                f"(1, {length}) or ({length},)"
            )


def _check_more(given: dict[str, object], *, causal: bool) -> None:
    """Raise InputError for ``given`` arguments that would change a result; warn of others that ask for something."""
    if given.pop("is_causal", causal) not in (None, causal):
        raise InputError(f"is_causal must be what the configuration says, causal={causal}")
    asked = [name for name, value in given.items() if value is not None and value is not False]
    if refused := [name for name in asked if name in UNSERVED]:
        raise InputError(
            f"{', '.join(refused)}: Linformer models have no cross-attention and no masks of heads; leave it out"
        )
    for name in (name for name in asked if name not in PACKED):
        warnings.warn(f"{name} is no argument of Linformer models, and changes nothing", stacklevel=3)


def packed_texts(
    row: Tensor, position_ids: Tensor | None, ends: Tensor | None, longest: int | None, *, others: Sequence[object]
) -> Documents | None:
    """The texts without padding in a row (1, T, ...), by their ``ends``, or by ``position_ids`` that begin anew; None
    where it is one text, or there are more rows, or ``others``: a mask, a cache, a wish for attention weights.

    Raises InputError for ends where there are.
    """
    alone = len(row) == 1 and all(x is None for x in others)
    if ends is not None:
        if not alone:
            raise InputError(
                "cu_seq_lens_q is of texts in one row, (1, T), without attention_mask, past_key_values and "
                "output_attentions"
            )
        return documents_of(ends, row, max_seqlen=longest)
    begins = begins_anew(position_ids, None) if alone and position_ids is not None else None
    if begins is None:
        return None
    starts = 1 + begins[0].nonzero()[:, 0]
    return documents_of(torch.cat([starts.new_zeros(1), starts, starts.new_full((1,), row.shape[1])]), row)


def check_whole_texts(mask: Tensor | None, given: dict[str, Any]) -> None:
    """Raise InputError where the arguments ``given`` to a head that reads whole texts hold several in one row."""
    if given.get("cu_seq_lens_q") is not None:
        raise InputError("cu_seq_lens_q: this head reads whole texts, one a row; give each a row of its own")
    if given.get("position_ids") is not None:
        check_one_text(given["position_ids"], None if mask is None else mask.bool())


class TextReader(nn.Module):
    """Embeddings, encoder and pooling of a configuration, and the pass through them; ``config`` is a Linformer's."""

    config: LinformerConfig
    layer_class: type[ModelLayer] = ModelLayer

    def build(self, config: LinformerConfig, add_pooling_layer: bool = True) -> None:
        """Make the parts."""
        self.embeddings = Embeddings(
            vocab_size=config.vocab_size,
            embedding_size=config.word_embedding_size,
            max_length=config.max_position_embeddings,
            position_offset=config.position_offset,
            type_vocab_size=config.type_vocab_size,
            pad_token_id=config.pad_token_id,
            norm=norm_of(config, config.word_embedding_size) if config.embed_norm else None,
            dropout=config.hidden_dropout_prob,
            has_positions=config.rope_parameters is None and config.position_init != "none",
        )
        narrow = config.word_embedding_size != config.hidden_size
        self.embeddings_project = nn.Linear(config.word_embedding_size, config.hidden_size) if narrow else None
        self.encoder = ModelEncoder(config, self.layer_class)
        pools, kind = add_pooling_layer and config.use_pooler, config.classifier_pooling
        self.pooler = Pooler(config.hidden_size) if pools and kind == "cls" else None
        self.pool = Pooling(kind) if pools and kind != "cls" else None  # has no weights

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        query_expansion_positions: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        past_key_values: CausalCache | None = None,
        cu_seq_lens_q: Tensor | None = None,
        max_length_q: int | None = None,
        **kwargs: object,
    ) -> BaseModelOutputWithPooling:
        """Encode input_ids long (B, n) or inputs_embeds (B, n, D) under attention_mask (B, n) of 1 and 0.

        Several texts in one row (1, T), without padding: ``position_ids`` that begin anew, as
        DataCollatorWithFlattening makes them, or ``cu_seq_lens_q`` (B + 1), their ends from 0, with ``max_length_q``,
        the most tokens of one. Each is read as if alone, and pooler_output is of each.
        Padding may stand on either side of a text: positions count from its first token, unless ``position_ids`` (n),
        (1, n) or (B, n) gives them, of one text a row, and what is returned stands in the places of the input. Padding
        within a text has a position, in a causal model, which reads turns padded one by one, none.
        ``output_attentions`` computes the weights explicitly: (B, h, n, k) a layer, see LinformerAttention.
        ``query_expansion_positions`` bool (B, n), from sentence-transformers' MultiVectorEncoder: tokens that
        attention_mask hides and that have states all the same; they read the text, and no token reads them.
        ``global_attention_mask`` (B, n), Longformer's: 1 for tokens that every query of layers with slots sees exactly,
        such as headings; at most 256 of a text.
        ``past_key_values``: of a causal model, an empty CausalCache, which is filled, or one with the texts' beginning.
        Raises InputError on both or neither input, on n above max_position_embeddings, on a bad mask, and on arguments
        of BERT or of transformers' attention that it has not and that would change the result; warns of others.
        """
        _check_more(kwargs, causal=self.config.causal)
        whole = not continues_text(past_key_values)
        given = self._checked_input(input_ids, inputs_embeds)
        _check_numbers(given, token_type_ids=token_type_ids, position_ids=position_ids)
        wants = self.config.output_attentions if output_attentions is None else output_attentions
        others = attention_mask, past_key_values, True if wants else None
        documents = packed_texts(given, position_ids, cu_seq_lens_q, max_length_q, others=others)
        self._check_length(given, documents)
        mask, order, places = self._read(attention_mask, given, past_key_values)
        query_mask = reading_mask(mask, query_expansion_positions)
        marks = checked_marks(global_attention_mask, *given.shape[:2])
        if inputs_embeds is not None:
            inputs_embeds = blank_padding(inputs_embeds, mask if query_mask is None else query_mask)
        if order is not None:
            mask, query_mask, marks, input_ids, inputs_embeds, token_type_ids, position_ids = _all_moved(
                order.there, mask, query_mask, marks, input_ids, inputs_embeds, token_type_ids, position_ids
            )
        position_ids, places = self._positions(input_ids, position_ids, mask, places, documents, past_key_values)
        hidden = self._embedded(
            input_ids, inputs_embeds=inputs_embeds, token_type_ids=token_type_ids, position_ids=position_ids
        )
        keeps = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        own = type(self.embeddings) is Embeddings and can_run_in_parts(self.embeddings, hidden)
        hidden = blank_padding(hidden, mask if query_mask is None else query_mask)
        out = self.encoder(
            hidden,
            mask,
            output_hidden_states=bool(keeps),
            output_attentions=bool(wants),
            query_mask=query_mask,
            global_attention_mask=marks,
            positions=places,
            documents=documents,
            overwrite=own,
            cache=past_key_values,
        )
        pooler_output = self._pooled(out.last_hidden_state, mask, documents) if whole else None
        out = out if order is None else self._in_places(out, order)
        return BaseModelOutputWithPooling(
            last_hidden_state=out.last_hidden_state,
            pooler_output=pooler_output,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )

    def _read(
        self, mask: Tensor | None, given: Tensor, cache: CausalCache | None
    ) -> tuple[Tensor | None, TextFirst | None, Tensor | None]:
        """The checked mask of what is given, how its rows are moved, and with a ``cache`` its places, long (B, n)."""
        if cache is not None:
            self._check_cache(cache)
            sizes = {"layers": self.config.num_hidden_layers, "most": self.config.max_position_embeddings}
            return cache.read(mask, given, from_text=True, **sizes)
        mask = checked_mask(mask, batch=given.shape[0], length=given.shape[1])
        return mask, without_holes(mask) if self.config.causal else text_first(mask), None

    def _check_cache(self, cache: object) -> None:
        if not isinstance(cache, CausalCache):
            raise InputError(
                f"past_key_values is a {type(cache).__name__}, and can only be a CausalCache or None; of PEFT, LoRA "
                "and prompt tuning are served, and not prefix tuning, which gives keys and values"
            )
        if not self.config.causal:
            raise InputError("past_key_values is for a model with causal=True in its configuration")

    def _positions(
        self, input_ids: Tensor | None, position_ids: Tensor | None, mask: Tensor | None, places: Tensor | None,
        documents: Documents | None, cache: Any,
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        """Positions of tokens in the table, and those that rotations turn by; of documents these are of the longest."""
        if documents is not None:
            own = documents.places[None] if position_ids is None else position_ids
            return own, torch.arange(documents.longest, device=own.device)
        if position_ids is not None:
            check_one_text(position_ids, mask)
        elif places is not None:
            position_ids = self._next_positions(input_ids, places, cache)
        return position_ids, position_ids

    def _next_positions(self, input_ids: Tensor | None, places: Tensor, cache: Any) -> Tensor:
        """Positions of the tokens at ``places`` long (B, n), which are these, or counted without padding tokens."""
        if input_ids is None or self.embeddings.uncounted is None or self.embeddings.position_embeddings is None:
            return places
        own = self.embeddings.positions(input_ids, places.shape[1], places.device)
        before, cache.counted = cache.counted, cache.counted + (own >= 0).sum(dim=1, keepdim=True)
        return torch.where(own < 0, own, own + before)

    def _embedded(self, input_ids: Tensor | None, **given: Tensor | None) -> Tensor:
        """The embeddings of long (B, n) or of what is ``given`` in their place, as wide as the encoder: (B, n, D)."""
        hidden = self.embeddings(input_ids, **given)
        return hidden if self.embeddings_project is None else self.embeddings_project(hidden)

    def _in_places(self, out: BaseModelOutput, order: TextFirst) -> BaseModelOutput:
        """``out`` with its tokens where the caller has them: states, and rows of attention weights."""
        last, states, weights = out.last_hidden_state, out.hidden_states, out.attentions
        assert last is not None
        return BaseModelOutput(
            last_hidden_state=moved(last, order.back),
            hidden_states=None if states is None else tuple(moved(x, order.back) for x in states),
            attentions=None
            if weights is None
            else tuple(
                self._weights_in_places(x, order, layer.attention)
                for x, layer in zip(weights, self.encoder.layers, strict=True)
            ),
        )

    def _weights_in_places(self, weights: Tensor, order: TextFirst, attention: Any) -> Tensor:
        """(B, h, n, S) of an ``attention``: queries, and where each has a column for every token, those too."""
        if getattr(attention, "covers_all", False):
            weights = moved(weights.transpose(1, 3), order.back).transpose(1, 3)
        return moved(weights.transpose(1, 2), order.back).transpose(1, 2)

    def _pooled(self, hidden: Tensor, mask: Tensor | None, documents: Documents | None = None) -> Tensor | None:
        if documents is not None:
            hidden, mask = documents.padded(hidden)
        if self.pooler is not None:
            return self.pooler(hidden)
        return None if self.pool is None else self.pool(hidden, mask)

    def _checked_input(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        check_tensors(input_ids=input_ids, inputs_embeds=inputs_embeds)
        if (input_ids is None) == (inputs_embeds is None):
            raise InputError("give either input_ids or inputs_embeds, and not both")
        given = input_ids if input_ids is not None else inputs_embeds
        assert given is not None
        vectors = inputs_embeds is not None
        features = (self.config.word_embedding_size,) if vectors else ()
        if given.dim() < 2 or given.shape[2:] != features or given.is_floating_point() != vectors:
            raise InputError(
                f"the input is {given.dtype} of shape {tuple(given.shape)}: input_ids are whole numbers (B, n), and "
                f"inputs_embeds vectors (B, n, {self.config.word_embedding_size})"
            )
        if given.shape[1] == 0:
            raise InputError("the input has no tokens; even an empty text has its special tokens")
        return given

    def _check_length(self, given: Tensor, documents: Documents | None) -> None:
        length = given.shape[1] if documents is None else documents.longest
        limit = self.config.max_position_embeddings
        if length > limit:
            raise InputError(
                f"the input has n={length} tokens, this model takes at most max_position_embeddings={limit}: "
                f"shorten it, or make a longer model: longform convert FOLDER OUTPUT --max-length {length}, or "
                f"longform.convert(..., max_length={length}) in Python"
            )


def reader_of(model: object) -> TextReader | None:
    """The TextReader in a model of ours, with or without a head; None for other models."""
    base = getattr(model, "base_model", None)
    return base if isinstance(base, TextReader) else None


class BareLinformer(TextReader):
    """A TextReader by itself, as ``longform.Encoder`` has it: torch's module, without what transformers' classes bring,
    whose import takes three times as long as torch's.
    """

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__()
        self.config = config
        self.build(config)

    @property
    def base_model(self) -> "BareLinformer":
        """Itself, as of a model of transformers without a head."""
        return self

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return self.embeddings.word_embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its weights."""
        return self.embeddings.word_embeddings.weight.dtype

    @property
    def name_or_path(self) -> str:
        """The folder that it was read from."""
        return self.config.name_or_path or ""
