"""The families of models that can be converted, by Hugging Face's model_type."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.bert import BERT
from longform.conversion.families.distilbert import DISTILBERT
from longform.conversion.families.electra import ELECTRA
from longform.conversion.families.eurobert import EUROBERT
from longform.conversion.families.family import Family
from longform.conversion.families.modernbert import MODERNBERT
from longform.conversion.families.mpnet import MPNET
from longform.conversion.families.roberta import ROBERTA
from longform.conversion.families.rotary_bert import GTE, JINA_V3, NOMIC
from longform.errors import ConversionError

FAMILIES = (BERT, ROBERTA, DISTILBERT, ELECTRA, MPNET, MODERNBERT, EUROBERT, NOMIC, GTE, JINA_V3)
NO_SLOTS = (
    "its attention multiplies queries and keys with vectors of their distance, pair by pair (disentangled attention), "
    "and a slot, which stands for many tokens, has no one distance; convert an encoder of the BERT, RoBERTa or MPNet "
    "kind in its place"
)
UNFIT = {
    "deberta": NO_SLOTS,
    "deberta-v2": NO_SLOTS,
    "new": "it is GTE under the name of code that runs from the hub, which Longform does not run; convert the same "
    "model as transformers has it (model_type 'gte', for instance alibaba-nlp-community/gte-multilingual-base)",
}  # model types, and why not
BY_MODEL_TYPE: dict[str, Family] = {kind: family for family in FAMILIES for kind in family.model_types}


def check_model_type(model_type: Any) -> None:
    """Raise ConversionError, listing what is supported, for what is neither of a family nor a Longform."""
    supported = "supported model types: " + ", ".join(BY_MODEL_TYPE)
    if model_type is None:
        raise ConversionError(f"the source's config.json has no model_type; {supported}")
    if not isinstance(model_type, str) or model_type not in (*BY_MODEL_TYPE, "linformer"):
        reason = UNFIT.get(model_type) if isinstance(model_type, str) else None
        why = "" if reason is None else f": {reason}"
        raise ConversionError(f"a source of model_type {model_type!r} cannot be converted{why}; {supported}")


def family_of(config: PreTrainedConfig) -> Family:
    """The family of a source that is no Longform. Raises ConversionError on other types and on decoders."""
    check_model_type(config.model_type)
    for flag in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        if getattr(config, flag, False):
            raise ConversionError(
                f"the source is a decoder ({flag}=True in its configuration); Longform is an encoder that reads in "
                f"both directions, so only encoders can be converted ({', '.join(BY_MODEL_TYPE)})"
            )
    return BY_MODEL_TYPE[config.model_type]
