"""BERTs with rotary positions: Nomic's and Alibaba's (GTE), whose feed-forward part is gated, and Jina's v3.

Names are those of the published files, which transformers reads and writes; its classes have others.
"""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import EMBEDDINGS, LAYER, PLAIN_HEADS, POOLED_CLASSIFIER, POOLER
from longform.conversion.families.family import Family, Rule, bert_like_options
from longform.conversion.families.roberta import HEADS as ROBERTA_HEADS

SOURCE_LAYER, GTE_LAYER = "{base}encoder.layers.{layer}.", "{base}encoder.layer.{layer}."
WORDS = tuple(rule for rule in EMBEDDINGS if "word" in rule.source or "token_type" in rule.source)
QUERY_KEY_VALUE = ("query", "key", "value")
NORMS = (
    Rule("{base}emb_ln.{part}", "{base}embeddings.LayerNorm.{part}"),
    Rule(SOURCE_LAYER + "norm1.{part}", LAYER + "attention_norm.{part}"),
    Rule(SOURCE_LAYER + "norm2.{part}", LAYER + "feed_forward_norm.{part}"),
)
NOMIC_LAYERS = (
    *(
        Rule(f"{SOURCE_LAYER}attn.Wqkv.{{part}}[{i}]", f"{LAYER}attention.{x}.{{part}}")
        for i, x in enumerate(QUERY_KEY_VALUE)
    ),
    Rule(SOURCE_LAYER + "attn.out_proj.{part}", LAYER + "attention.output.{part}"),
    Rule(SOURCE_LAYER + "mlp.fc12.{part}", LAYER + "feed_forward.gate.{part}"),
    Rule(SOURCE_LAYER + "mlp.fc11.{part}", LAYER + "feed_forward.intermediate.{part}"),
    Rule(SOURCE_LAYER + "mlp.fc2.{part}", LAYER + "feed_forward.output.{part}"),
)
JINA_LAYERS = (
    *(
        Rule(f"{SOURCE_LAYER}mixer.Wqkv.{{part}}[{i}]", f"{LAYER}attention.{x}.{{part}}")
        for i, x in enumerate(QUERY_KEY_VALUE)
    ),
    Rule(SOURCE_LAYER + "mixer.out_proj.{part}", LAYER + "attention.output.{part}"),
    Rule(SOURCE_LAYER + "mlp.fc1.{part}", LAYER + "feed_forward.intermediate.{part}"),
    Rule(SOURCE_LAYER + "mlp.fc2.{part}", LAYER + "feed_forward.output.{part}"),
)
GTE_LAYERS = (
    Rule("{base}embeddings.LayerNorm.{part}", "{base}embeddings.LayerNorm.{part}"),
    *(
        Rule(f"{GTE_LAYER}attention.qkv_proj.{{part}}[{i}]", f"{LAYER}attention.{x}.{{part}}")
        for i, x in enumerate(QUERY_KEY_VALUE)
    ),
    Rule(GTE_LAYER + "attention.o_proj.{part}", LAYER + "attention.output.{part}"),
    Rule(GTE_LAYER + "attn_ln.{part}", LAYER + "attention_norm.{part}"),
    Rule(GTE_LAYER + "mlp.up_gate_proj.{part}[0]", LAYER + "feed_forward.intermediate.{part}"),
    Rule(GTE_LAYER + "mlp.up_gate_proj.{part}[1]", LAYER + "feed_forward.gate.{part}"),
    Rule(GTE_LAYER + "mlp.down_proj.{part}", LAYER + "feed_forward.output.{part}"),
    Rule(GTE_LAYER + "mlp_ln.{part}", LAYER + "feed_forward_norm.{part}"),
)
NOMIC_HEADS = {
    "masked-lm": (
        Rule("cls.predictions.transform.dense.{part}", "lm_head.dense.{part}"),
        Rule("cls.predictions.transform.layer_norm.{part}", "lm_head.layer_norm.{part}"),
        Rule("cls.predictions.decoder.{part}", "lm_head.decoder.{part}"),
        Rule("cls.predictions.bias", "lm_head.bias"),
    ),
    "sequence-classification": POOLED_CLASSIFIER,
    **PLAIN_HEADS,
}
GTE_HEADS = NOMIC_HEADS | {
    "masked-lm": (
        Rule("lm_head.dense.{part}", "lm_head.dense.{part}"),
        Rule("lm_head.norm.{part}", "lm_head.layer_norm.{part}"),
        Rule("lm_head.decoder.{part}", "lm_head.decoder.{part}"),
    )
}


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for a configuration like BERT's with rope_parameters."""
    rope = dict(config.rope_parameters)
    return bert_like_options(config) | {"classifier_activation": "tanh", "rope_parameters": rope}


def gated_options(config: PreTrainedConfig) -> dict[str, Any]:
    """Options of a GteConfig: ``options`` with a gated feed-forward part."""
    return options(config) | {"is_gated_act": True}


def nomic_options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for a NomicBertConfig: no biases but in norms and heads."""
    return gated_options(config) | {"attention_bias": False, "mlp_bias": False}


NOMIC = Family(
    name="NomicBERT",
    model_types=("nomic_bert",),
    base_name="nomic_bert.",
    encoder=(*WORDS, *NOMIC_LAYERS, *NORMS),
    pooler=POOLER,
    heads=NOMIC_HEADS,
    options=nomic_options,
    fused={SOURCE_LAYER + "attn.Wqkv.{part}": 3},
    other_names=True,
)
GTE = Family(
    name="GTE",
    model_types=("gte",),
    base_name="gte.",
    encoder=(*WORDS, *GTE_LAYERS),
    pooler=POOLER,
    heads=GTE_HEADS,
    options=gated_options,
    gelu_head=True,
    fused={GTE_LAYER + "attention.qkv_proj.{part}": 3, GTE_LAYER + "mlp.up_gate_proj.{part}": 2},
    zero_biases=(".feed_forward.gate.bias", ".feed_forward.intermediate.bias"),  # the source has none in these two
    other_names=True,
)
JINA_V3 = Family(
    name="Jina embeddings v3",
    model_types=("jina_embeddings_v3",),
    base_name="roberta.",
    encoder=(*WORDS, *JINA_LAYERS, *NORMS),
    pooler=POOLER,
    heads=ROBERTA_HEADS,
    options=options,
    gelu_head=True,
    fused={SOURCE_LAYER + "mixer.Wqkv.{part}": 3},
    other_names=True,
)
