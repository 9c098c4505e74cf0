"""Hugging Face models with a task head: the encoder for masked tokens, classification, token classification and
question answering, with BERT's arguments and outputs.

Axes: B batch, n tokens, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers.activations import ACT2FN
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from longform.choices import POOLED
from longform.errors import ConfigurationError, InputError
from longform.functional.masks import checked_mask
from longform.functional.pooling import pooled_width
from longform.layers.causal_cache import CausalCache
from longform.models.configuration_linformer import LinformerConfig
from longform.models.modeling_linformer import LinformerModel, LinformerPreTrainedModel
from longform.models.text_reader import Pooling, check_whole_texts, continues_text, norm_of


def _head_dropout(config: LinformerConfig) -> nn.Dropout:
    chosen = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
    return nn.Dropout(chosen)


def _extras(out: BaseModelOutputWithPooling) -> dict[str, Any]:
    return {"hidden_states": out.hidden_states, "attentions": out.attentions}


class PredictionHead(nn.Module):
    """norm(activation(dense(x))), which ModernBERT has before the last layer of every task: (..., D) -> (..., D)."""

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.classifier_bias)
        self.activation = ACT2FN[config.classifier_activation]
        self.norm = norm_of(config)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (..., D) -> (..., D)."""
        return self.norm(self.activation(self.dense(hidden)))


def _before_last(config: LinformerConfig) -> nn.Module:
    """Modules before the one linear layer of a task: none, but in ModernBERT."""
    return PredictionHead(config) if config.prediction_head == "modernbert" else nn.Identity()


class MaskedLMHead(nn.Module):
    """decoder(LayerNorm(activation(dense(x)))): (B, n, D) -> (B, n, V); the decoder is tied to the word embeddings.

    With ``config.prediction_head`` "eurobert" only the decoder.
    """

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__()
        width = config.word_embedding_size
        whose = config.prediction_head
        self.dense, self.layer_norm = None, None
        if whose != "eurobert":
            self.dense = nn.Linear(config.hidden_size, width, bias=config.classifier_bias)
            self.layer_norm = norm_of(config, width)
        self.activation = ACT2FN[config.classifier_activation if whose == "modernbert" else config.hidden_act]
        self.decoder = nn.Linear(width, config.vocab_size, bias=config.decoder_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> logits (B, n, V)."""
        if self.dense is None or self.layer_norm is None:
            return self.decoder(hidden)
        return self.decoder(self.layer_norm(self.activation(self.dense(hidden))))


class ClassificationHead(nn.Module):
    """out_proj(activation(dense(pooled))): pooled states (B, D), or two poolings side by side (B, 2 D) -> (B, labels).

    The pooling is ``config.classifier_pooling`` (``longform.functional.pooling``); "late" is a mean of what activation
    gives for every token. With ``config.prediction_head`` "modernbert" there is a norm before ``out_proj``.
    """

    def __init__(self, config: LinformerConfig, labels: int) -> None:
        super().__init__()
        width = pooled_width(config.classifier_pooling, config.hidden_size)
        modern = config.prediction_head == "modernbert"
        self.dense = nn.Linear(width, width, bias=config.classifier_bias)
        self.activation = ACT2FN[config.classifier_activation]
        self.norm = norm_of(config, width) if modern else nn.Identity()
        self.dropout = _head_dropout(config)
        self.out_proj = nn.Linear(width, labels)
        self.late = config.classifier_pooling == "late"
        self.pool = Pooling("mean" if self.late else config.classifier_pooling)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """hidden (B, n, D), bool mask (B, n) or None -> logits (B, labels)."""
        states = self.activation(self.dense(hidden if self.late else self.pool(hidden, mask)))
        features = self.pool(states, mask) if self.late else states
        return self.out_proj(self.dropout(self.norm(features)))


class LinformerForMaskedLM(LinformerPreTrainedModel):
    """Masked-language model: logits (B, n, V); ``labels`` long (B, n), -100 where there is nothing to predict."""

    _tied_weights_keys = {"lm_head.decoder.weight": "linformer.embeddings.word_embeddings.weight"}  # noqa: RUF012

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__(config)
        self.linformer = LinformerModel(config, add_pooling_layer=False)
        self.lm_head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        """The decoder."""
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the decoder."""
        self.lm_head.decoder = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: object,
    ) -> MaskedLMOutput:
        """See LinformerModel.forward; the loss is the mean cross-entropy in nats over labelled tokens."""
        out = self.linformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.lm_head(out.last_hidden_state)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits.flatten(0, 1).float(), labels.flatten().to(logits.device))
        return MaskedLMOutput(loss=loss, logits=logits, **_extras(out))


class LinformerForCausalLM(LinformerForMaskedLM, GenerationMixin):
    """Language model from left to right, with Hugging Face's ``generate``; its configuration has ``causal``.

    What is kept of earlier tokens (``past_key_values``) is a CausalCache, and no other: two windows, and a slot for
    each run. It cannot go back, as assisted decoding would have it do.
    """

    _is_stateful = True  # transformers refuses assisted decoding then

    def __init__(self, config: LinformerConfig) -> None:
        if not config.causal:
            raise ConfigurationError(
                "LinformerForCausalLM needs a configuration with causal=True, an attention_window and projection in "
                f"{POOLED}"
            )
        super().__init__(config)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """See LinformerModel.forward; ``labels`` long (B, n), the input's own tokens: each is compared with what the
        one before it gives; -100 for none. ``logits_to_keep``: only of the last tokens, 0 for all.
        """
        if use_cache and past_key_values is None:
            past_key_values = CausalCache(self.config.num_hidden_layers)
        out = self.linformer(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            past_key_values=past_key_values,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits, loss = self.lm_head(out.last_hidden_state[:, kept]), None
        if labels is not None:
            wanted = labels[:, 1:].flatten().to(logits.device)
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), wanted)
        past: Any = past_key_values
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past, **_extras(out))

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # transformers says then that it ignores a cache_implementation

    def _prepare_cache_for_generation(
        self: Any, generation_config: Any, model_kwargs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if generation_config.use_cache and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = CausalCache(self.config.num_hidden_layers)


class LinformerForSequenceClassification(LinformerPreTrainedModel):
    """Classification of documents: logits (B, labels).

    As in Hugging Face, ``config.problem_type`` says whether a document has one label, several, or values (regression).
    """

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.linformer = LinformerModel(config, add_pooling_layer=False)
        self.classifier = ClassificationHead(config, config.num_labels)  # ty: ignore[invalid-argument-type]  always set
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: object,
    ) -> SequenceClassifierOutput:
        """``labels``: long (B,), float (B, labels) for multi-label, float (B,) for regression.

        Raises InputError where ``past_key_values`` has read the beginning of the texts: a label is of a whole text.
        """
        if continues_text(kwargs.get("past_key_values")):
            raise InputError(
                "past_key_values has read the beginning of the texts, and a label is of a whole text: give it at once"
            )
        check_whole_texts(attention_mask, kwargs)
        out = self.linformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        hidden = out.last_hidden_state
        mask = checked_mask(attention_mask, batch=hidden.shape[0], length=hidden.shape[1])
        logits = self.classifier(hidden, mask)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits, **_extras(out))


class LinformerForTokenClassification(LinformerPreTrainedModel):
    """Token classification: logits (B, n, labels); ``labels`` long (B, n), -100 at tokens without a label."""

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.linformer = LinformerModel(config, add_pooling_layer=False)
        self.head = _before_last(config)
        self.dropout = _head_dropout(config)
        # Hugging Face's num_labels may be None in type; it is always set here.
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)  # ty: ignore[invalid-argument-type]
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: object,
    ) -> TokenClassifierOutput:
        """See LinformerModel.forward."""
        out = self.linformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.dropout(self.head(out.last_hidden_state)))
        loss = None if labels is None else self.loss_function(logits, labels, self.config)
        return TokenClassifierOutput(loss=loss, logits=logits, **_extras(out))


class LinformerForQuestionAnswering(LinformerPreTrainedModel):
    """Extractive question answering: logits (B, n) of an answer's start and of its end; their positions long (B,)."""

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__(config)
        self.linformer = LinformerModel(config, add_pooling_layer=False)
        self.head = _before_last(config)
        self.dropout = _head_dropout(config) if config.prediction_head == "modernbert" else nn.Identity()
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: object,
    ) -> QuestionAnsweringModelOutput:
        """See LinformerModel.forward; one text a row."""
        check_whole_texts(attention_mask, kwargs)
        out = self.linformer(
            input_ids, attention_mask, token_type_ids, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        start, end = self.qa_outputs(self.dropout(self.head(out.last_hidden_state))).unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start, end, start_positions, end_positions)
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start, end_logits=end, **_extras(out))
