"""MPNet: RoBERTa's embeddings and heads, other names in a layer, and a bias by distance that all layers share."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import EMBEDDINGS, LAYER, POOLER, SOURCE_LAYER
from longform.conversion.families.family import Family, Rule, bert_like_options
from longform.conversion.families.roberta import HEADS
from longform.errors import ConversionError

PAD, BUCKETS, MAX_DISTANCE = 1, 32, 128  # fixed in MPNet's code, whatever its configuration says
LAYERS = (
    Rule(SOURCE_LAYER + "attention.attn.q.{part}", LAYER + "attention.query.{part}"),
    Rule(SOURCE_LAYER + "attention.attn.k.{part}", LAYER + "attention.key.{part}"),
    Rule(SOURCE_LAYER + "attention.attn.v.{part}", LAYER + "attention.value.{part}"),
    Rule(SOURCE_LAYER + "attention.attn.o.{part}", LAYER + "attention.output.{part}"),
    Rule(SOURCE_LAYER + "attention.LayerNorm.{part}", LAYER + "attention_norm.{part}"),
    Rule(SOURCE_LAYER + "intermediate.dense.{part}", LAYER + "feed_forward.intermediate.{part}"),
    Rule(SOURCE_LAYER + "output.dense.{part}", LAYER + "feed_forward.output.{part}"),
    Rule(SOURCE_LAYER + "output.LayerNorm.{part}", LAYER + "feed_forward_norm.{part}"),
    Rule("{base}encoder.relative_attention_bias.weight", "{base}encoder.relative_attention_bias.weight"),
)


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for an MPNetConfig."""
    fixed = {"pad_token_id": PAD, "relative_attention_num_buckets": BUCKETS}
    other = {name: getattr(config, name) for name, value in fixed.items() if getattr(config, name) != value}
    if other:
        raise ConversionError(
            f"the source's config.json has {other}, while transformers' MPNet computes with {fixed} whatever it says: "
            "its weights do not belong to this configuration"
        )
    return bert_like_options(config) | {
        "classifier_activation": "tanh",
        "position_offset": PAD + 1,
        "relative_attention_num_buckets": BUCKETS,
        "relative_attention_max_distance": MAX_DISTANCE,
    }


MPNET = Family(
    name="MPNet",
    model_types=("mpnet",),
    base_name="mpnet.",
    encoder=tuple(rule for rule in EMBEDDINGS if "token_type" not in rule.source) + LAYERS,
    pooler=POOLER,
    heads=HEADS,
    options=options,
    gelu_head=True,
)
