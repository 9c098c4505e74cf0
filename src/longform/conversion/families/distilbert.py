"""DistilBERT: BERT with other names, no token types and no pooler."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import EMBEDDINGS, LAYER, PLAIN_HEADS
from longform.conversion.families.family import Family, Rule, shared_options

SOURCE_LAYER = "{base}transformer.layer.{layer}."
LAYERS = (
    Rule(SOURCE_LAYER + "attention.q_lin.{part}", LAYER + "attention.query.{part}"),
    Rule(SOURCE_LAYER + "attention.k_lin.{part}", LAYER + "attention.key.{part}"),
    Rule(SOURCE_LAYER + "attention.v_lin.{part}", LAYER + "attention.value.{part}"),
    Rule(SOURCE_LAYER + "attention.out_lin.{part}", LAYER + "attention.output.{part}"),
    Rule(SOURCE_LAYER + "sa_layer_norm.{part}", LAYER + "attention_norm.{part}"),
    Rule(SOURCE_LAYER + "ffn.lin1.{part}", LAYER + "feed_forward.intermediate.{part}"),
    Rule(SOURCE_LAYER + "ffn.lin2.{part}", LAYER + "feed_forward.output.{part}"),
    Rule(SOURCE_LAYER + "output_layer_norm.{part}", LAYER + "feed_forward_norm.{part}"),
)
CLASSIFIER = (
    Rule("pre_classifier.{part}", "classifier.dense.{part}"),
    Rule("classifier.{part}", "classifier.out_proj.{part}"),
)
HEADS = {
    "masked-lm": (
        Rule("vocab_transform.{part}", "lm_head.dense.{part}"),
        Rule("vocab_layer_norm.{part}", "lm_head.layer_norm.{part}"),
        Rule("vocab_projector.{part}", "lm_head.decoder.{part}"),
    ),
    "sequence-classification": CLASSIFIER,
    **PLAIN_HEADS,
}


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for a DistilBertConfig."""
    return shared_options(config) | {
        "hidden_size": config.dim,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "intermediate_size": config.hidden_dim,
        "hidden_act": config.activation,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout": config.seq_classif_dropout,
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-12,  # fixed in DistilBERT's code
        "classifier_activation": "relu",
        "position_offset": 0,
    }


DISTILBERT = Family(
    name="DistilBERT",
    model_types=("distilbert",),
    base_name="distilbert.",
    encoder=tuple(rule for rule in EMBEDDINGS if "token_type" not in rule.source) + LAYERS,
    heads=HEADS,
    options=options,
)
