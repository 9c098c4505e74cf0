"""RoBERTa, XLM-RoBERTa and CamemBERT: one set of names, and a position table that starts after the padding's row."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import EMBEDDINGS, LAYERS, PLAIN_HEADS, POOLER
from longform.conversion.families.family import Family, Rule, bert_like_options
from longform.errors import ConversionError

DENSE_CLASSIFIER = (
    Rule("classifier.dense.{part}", "classifier.dense.{part}"),
    Rule("classifier.out_proj.{part}", "classifier.out_proj.{part}"),
)
HEADS = {
    "masked-lm": (
        Rule("lm_head.dense.{part}", "lm_head.dense.{part}"),
        Rule("lm_head.layer_norm.{part}", "lm_head.layer_norm.{part}"),
        Rule("lm_head.decoder.{part}", "lm_head.decoder.{part}"),
        Rule("lm_head.bias", "lm_head.bias"),
    ),
    "sequence-classification": DENSE_CLASSIFIER,
    **PLAIN_HEADS,
}


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for a RobertaConfig, XLMRobertaConfig or CamembertConfig."""
    if config.pad_token_id is None:
        raise ConversionError("the source's config.json has no pad_token_id, after which RoBERTa's positions begin")
    return bert_like_options(config) | {
        "classifier_activation": "tanh",
        "position_offset": config.pad_token_id + 1,
    }


ROBERTA = Family(
    name="RoBERTa",
    model_types=("roberta", "xlm-roberta", "camembert"),
    base_name="roberta.",
    encoder=EMBEDDINGS + LAYERS,
    pooler=POOLER,
    heads=HEADS,
    options=options,
    gelu_head=True,
)
