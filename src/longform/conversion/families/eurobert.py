"""EuroBERT: a Llama that reads in both directions, with keys and values that several heads of queries share."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import LAYER
from longform.conversion.families.family import Family, Rule, shared_options

SOURCE_LAYER = "{base}layers.{layer}."
ATTENTION = (
    Rule(SOURCE_LAYER + "self_attn.q_proj.{part}", LAYER + "attention.query.{part}"),
    Rule(SOURCE_LAYER + "self_attn.k_proj.{part}", LAYER + "attention.key.{part}"),
    Rule(SOURCE_LAYER + "self_attn.v_proj.{part}", LAYER + "attention.value.{part}"),
    Rule(SOURCE_LAYER + "self_attn.o_proj.{part}", LAYER + "attention.output.{part}"),
)
GATED = (
    Rule(SOURCE_LAYER + "mlp.gate_proj.{part}", LAYER + "feed_forward.gate.{part}"),
    Rule(SOURCE_LAYER + "mlp.up_proj.{part}", LAYER + "feed_forward.intermediate.{part}"),
    Rule(SOURCE_LAYER + "mlp.down_proj.{part}", LAYER + "feed_forward.output.{part}"),
)
ENCODER = (
    Rule("{base}embed_tokens.weight", "{base}embeddings.word_embeddings.weight"),
    Rule(SOURCE_LAYER + "input_layernorm.weight", LAYER + "attention_norm.weight"),
    Rule(SOURCE_LAYER + "post_attention_layernorm.weight", LAYER + "feed_forward_norm.weight"),
    *ATTENTION,
    *GATED,
    Rule("{base}norm.weight", "{base}encoder.final_norm.weight"),
)
HEADS = {
    "masked-lm": (Rule("lm_head.{part}", "lm_head.decoder.{part}"),),
    "sequence-classification": (
        Rule("dense.{part}", "classifier.dense.{part}"),
        Rule("classifier.{part}", "classifier.out_proj.{part}"),
    ),
    "token-classification": (Rule("classifier.{part}", "classifier.{part}"),),
    "question-answering": (),  # which the source has no model for
}
SAME = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "head_dim",
    "num_key_value_heads",
    "intermediate_size",
    "hidden_act",
    "attention_bias",
    "mlp_bias",
)
POOLINGS = {"bos": "cls", "mean": "mean", "late": "late"}


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for a EuroBertConfig."""
    return (
        shared_options(config)
        | {name: getattr(config, name) for name in SAME}
        | {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.rms_norm_eps,
            "type_vocab_size": 0,
            "rope_parameters": dict(config.rope_parameters),
            "normalization": "pre",
            "norm_type": "rms_norm",
            "embed_norm": False,
            "is_gated_act": True,
            "prediction_head": "eurobert",
            "decoder_bias": config.mlp_bias,
            "classifier_pooling": POOLINGS[config.classifier_pooling],
            "classifier_activation": "gelu",
        }
    )


EUROBERT = Family(
    name="EuroBERT", model_types=("eurobert",), base_name="model.", encoder=ENCODER, heads=HEADS, options=options
)
