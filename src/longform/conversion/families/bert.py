"""BERT and its derivatives (MiniLM, multilingual BERT, domain BERTs)."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.family import BUFFERS, Family, IgnoredKey, Rule, bert_like_options

EMBEDDINGS = (
    Rule("{base}embeddings.word_embeddings.weight", "{base}embeddings.word_embeddings.weight"),
    Rule("{base}embeddings.position_embeddings.weight", "{base}embeddings.position_embeddings.weight"),
    Rule("{base}embeddings.token_type_embeddings.weight", "{base}embeddings.token_type_embeddings.weight"),
    Rule("{base}embeddings.LayerNorm.{part}", "{base}embeddings.LayerNorm.{part}"),
)
SOURCE_LAYER, LAYER = "{base}encoder.layer.{layer}.", "{base}encoder.layers.{layer}."
LAYERS = (
    Rule(SOURCE_LAYER + "attention.self.query.{part}", LAYER + "attention.query.{part}"),
    Rule(SOURCE_LAYER + "attention.self.key.{part}", LAYER + "attention.key.{part}"),
    Rule(SOURCE_LAYER + "attention.self.value.{part}", LAYER + "attention.value.{part}"),
    Rule(SOURCE_LAYER + "attention.output.dense.{part}", LAYER + "attention.output.{part}"),
    Rule(SOURCE_LAYER + "attention.output.LayerNorm.{part}", LAYER + "attention_norm.{part}"),
    Rule(SOURCE_LAYER + "intermediate.dense.{part}", LAYER + "feed_forward.intermediate.{part}"),
    Rule(SOURCE_LAYER + "output.dense.{part}", LAYER + "feed_forward.output.{part}"),
    Rule(SOURCE_LAYER + "output.LayerNorm.{part}", LAYER + "feed_forward_norm.{part}"),
)
POOLER = (Rule("{base}pooler.dense.{part}", "{base}pooler.dense.{part}"),)
# The pooler (dense, tanh) before BERT's classifier is the dense layer of Longform's classification head.
POOLED_CLASSIFIER = (
    Rule("{base}pooler.dense.{part}", "classifier.dense.{part}"),
    Rule("classifier.{part}", "classifier.out_proj.{part}"),
)
PLAIN_HEADS = {  # one linear layer each, the same in all families
    "token-classification": (Rule("classifier.{part}", "classifier.{part}"),),
    "question-answering": (Rule("qa_outputs.{part}", "qa_outputs.{part}"),),
}
HEADS = {
    "masked-lm": (
        Rule("cls.predictions.transform.dense.{part}", "lm_head.dense.{part}"),
        Rule("cls.predictions.transform.LayerNorm.{part}", "lm_head.layer_norm.{part}"),
        Rule("cls.predictions.decoder.{part}", "lm_head.decoder.{part}"),
        Rule("cls.predictions.bias", "lm_head.bias"),
    ),
    "sequence-classification": POOLED_CLASSIFIER,
    **PLAIN_HEADS,
}


def options(config: PreTrainedConfig) -> dict[str, Any]:
    """LinformerConfig's arguments for a BertConfig."""
    return bert_like_options(config) | {"classifier_activation": "tanh", "position_offset": 0}


BERT = Family(
    name="BERT",
    model_types=("bert",),
    base_name="bert.",
    encoder=EMBEDDINGS + LAYERS,
    pooler=POOLER,
    heads=HEADS,
    ignored=(
        *BUFFERS,
        IgnoredKey("cls.seq_relationship.{part}", "head for next-sentence prediction, which Longform has no model for"),
    ),
    options=options,
)
