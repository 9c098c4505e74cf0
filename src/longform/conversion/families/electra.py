"""ELECTRA, discriminator and generator; their word vectors may be narrower than the layers."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import EMBEDDINGS, LAYERS, PLAIN_HEADS
from longform.conversion.families.family import BUFFERS, Family, IgnoredKey, Rule, bert_like_options
from longform.conversion.families.roberta import DENSE_CLASSIFIER

HEADS = {
    "masked-lm": (
        Rule("generator_predictions.dense.{part}", "lm_head.dense.{part}"),
        Rule("generator_predictions.LayerNorm.{part}", "lm_head.layer_norm.{part}"),
        Rule("generator_lm_head.{part}", "lm_head.decoder.{part}"),
    ),
    "sequence-classification": DENSE_CLASSIFIER,
    **PLAIN_HEADS,
}


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for an ElectraConfig."""
    return bert_like_options(config) | {
        "embedding_size": None if config.embedding_size == config.hidden_size else config.embedding_size,
        "classifier_activation": "gelu",
        "position_offset": 0,
    }


ELECTRA = Family(
    name="ELECTRA",
    model_types=("electra",),
    base_name="electra.",
    encoder=(*EMBEDDINGS, Rule("{base}embeddings_project.{part}", "{base}embeddings_project.{part}"), *LAYERS),
    heads=HEADS,
    ignored=(
        *BUFFERS,
        IgnoredKey("discriminator_predictions.dense.{part}", "head for replaced-token detection (pre-training)"),
        IgnoredKey(
            "discriminator_predictions.dense_prediction.{part}", "head for replaced-token detection (pre-training)"
        ),
        IgnoredKey("sequence_summary.summary.{part}", "head for multiple choice, which Longform has no model for"),
    ),
    options=options,
    pretraining="encoder",
    gelu_head=True,
)
