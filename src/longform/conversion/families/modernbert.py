"""ModernBERT: rotary positions, gated feed-forward, and local layers between those that see the whole text."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import LAYER
from longform.conversion.families.family import Family, Rule, shared_options

SOURCE_LAYER = "{base}layers.{layer}."
ENCODER = (
    Rule("{base}embeddings.tok_embeddings.weight", "{base}embeddings.word_embeddings.weight"),
    Rule("{base}embeddings.norm.{part}", "{base}embeddings.LayerNorm.{part}"),
    Rule(SOURCE_LAYER + "attn_norm.{part}", LAYER + "attention_norm.{part}"),
    Rule(SOURCE_LAYER + "attn.Wqkv.{part}[0]", LAYER + "attention.query.{part}"),
    Rule(SOURCE_LAYER + "attn.Wqkv.{part}[1]", LAYER + "attention.key.{part}"),
    Rule(SOURCE_LAYER + "attn.Wqkv.{part}[2]", LAYER + "attention.value.{part}"),
    Rule(SOURCE_LAYER + "attn.Wo.{part}", LAYER + "attention.output.{part}"),
    Rule(SOURCE_LAYER + "mlp_norm.{part}", LAYER + "feed_forward_norm.{part}"),
    Rule(SOURCE_LAYER + "mlp.Wi.{part}[0]", LAYER + "feed_forward.gate.{part}"),
    Rule(SOURCE_LAYER + "mlp.Wi.{part}[1]", LAYER + "feed_forward.intermediate.{part}"),
    Rule(SOURCE_LAYER + "mlp.Wo.{part}", LAYER + "feed_forward.output.{part}"),
    Rule("{base}final_norm.{part}", "{base}encoder.final_norm.{part}"),
)
POOLED_CLASSIFIER = (
    Rule("head.dense.{part}", "classifier.dense.{part}"),
    Rule("head.norm.{part}", "classifier.norm.{part}"),
    Rule("classifier.{part}", "classifier.out_proj.{part}"),
)
PREDICTION = (Rule("head.dense.{part}", "head.dense.{part}"), Rule("head.norm.{part}", "head.norm.{part}"))
HEADS = {
    "masked-lm": (
        Rule("head.dense.{part}", "lm_head.dense.{part}"),
        Rule("head.norm.{part}", "lm_head.layer_norm.{part}"),
        Rule("decoder.{part}", "lm_head.decoder.{part}"),
    ),
    "sequence-classification": POOLED_CLASSIFIER,
    "token-classification": (*PREDICTION, Rule("classifier.{part}", "classifier.{part}")),
    "question-answering": (*PREDICTION, Rule("classifier.{part}", "qa_outputs.{part}")),
}
SAME = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "attention_bias",
    "mlp_bias",
    "norm_bias",
    "classifier_pooling",
    "classifier_dropout",
    "classifier_bias",
    "classifier_activation",
    "decoder_bias",
    "layer_types",
    "sliding_window",
)


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for a ModernBertConfig."""
    kinds = set(config.layer_types)
    return (
        shared_options(config)
        | {name: getattr(config, name) for name in SAME}
        | {
            "hidden_act": config.hidden_activation,
            "hidden_dropout_prob": config.mlp_dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.norm_eps,
            "type_vocab_size": 0,
            "rope_parameters": {kind: dict(config.rope_parameters[kind]) for kind in kinds},
            "normalization": "pre",
            "skip_first_prenorm": True,
            "is_gated_act": True,
            "prediction_head": "modernbert",
        }
    )


MODERNBERT = Family(
    name="ModernBERT",
    model_types=("modernbert",),
    base_name="model.",
    encoder=ENCODER,
    heads=HEADS,
    options=options,
    fused={SOURCE_LAYER + "attn.Wqkv.{part}": 3, SOURCE_LAYER + "mlp.Wi.{part}": 2},
)
