"""Linear-time Transformer encoders for long documents.

``import longform`` registers the models with Hugging Face's Auto classes.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from longform.layers.attention import LinformerAttention
from longform.models.configuration_linformer import LinformerConfig
from longform.models.inference import pack_weights
from longform.models.modeling_linformer import LinformerModel
from longform.models.registration import register as _register
from longform.models.task_heads import (
    LinformerForMaskedLM,
    LinformerForMultipleChoice,
    LinformerForQuestionAnswering,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
)

if TYPE_CHECKING:
    from longform.conversion.convert import ConversionResult, convert

__version__ = version("longform")
__all__ = [
    "ConversionResult",
    "LinformerAttention",
    "LinformerConfig",
    "LinformerForMaskedLM",
    "LinformerForMultipleChoice",
    "LinformerForQuestionAnswering",
    "LinformerForSequenceClassification",
    "LinformerForTokenClassification",
    "LinformerModel",
    "convert",
    "pack_weights",
]

_LATE = {"convert": "longform.conversion.convert", "ConversionResult": "longform.conversion.convert"}

_register()


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'longform' has no attribute {name!r}")
