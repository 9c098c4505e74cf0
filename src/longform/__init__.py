"""Linear-time Transformer encoders for long documents.

``import longform`` is quick: a name of ``__all__`` is imported, and torch with it, when it is first asked for. Hugging
Face's Auto classes know the models from then on, whichever of the two packages was imported first. Layers, models and
conversion are in this package; what reads, searches, trains and serves texts is in ``longform_text``, and only this
table of names knows it.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from longform.auto_tables import enter_late
from longform.choices import did_you_mean
from longform.units import cap_torch

if TYPE_CHECKING:
    from longform import kernels
    from longform.conversion.convert import ConversionResult, convert
    from longform.conversion.local import path_of
    from longform.conversion.packages import load_linformer
    from longform.layers.attention import LinformerAttention
    from longform.layers.effective_attention import effective_attention
    from longform.layers.encoder import LinformerEncoder
    from longform.layers.multihead import LinformerEncoderLayer, LinformerMultiheadAttention
    from longform.layers.options import Projection
    from longform.layers.parameter_groups import parameter_groups
    from longform.models.configuration_linformer import LinformerConfig
    from longform.models.graphs import capture
    from longform.models.inference import pack_weights
    from longform.models.modeling_linformer import LinformerModel
    from longform.models.task_heads import (
        LinformerForCausalLM,
        LinformerForMaskedLM,
        LinformerForQuestionAnswering,
        LinformerForSequenceClassification,
        LinformerForTokenClassification,
    )
    from longform_text.inference.classifiers import Classifier
    from longform_text.inference.encoders import Encoder
    from longform_text.inference.run import embed, predict
    from longform_text.inference.settings import InferenceResult, InferenceSettings
    from longform_text.search.index import Index
    from longform_text.training.alignment.run import AlignmentResult, align
    from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource
    from longform_text.training.distillation.run import DistillationResult, distill
    from longform_text.training.distillation.settings import DistillationSettings
    from longform_text.training.finetuning.run import FinetuningResult, finetune
    from longform_text.training.finetuning.settings import FinetuningSettings

__version__ = version("longform")
__all__ = [
    "AlignmentResult",
    "AlignmentSettings",
    "AlignmentSource",
    "Classifier",
    "ConversionResult",
    "DistillationResult",
    "DistillationSettings",
    "Encoder",
    "FinetuningResult",
    "FinetuningSettings",
    "Index",
    "InferenceResult",
    "InferenceSettings",
    "LinformerAttention",
    "LinformerConfig",
    "LinformerEncoder",
    "LinformerEncoderLayer",
    "LinformerForCausalLM",
    "LinformerForMaskedLM",
    "LinformerForQuestionAnswering",
    "LinformerForSequenceClassification",
    "LinformerForTokenClassification",
    "LinformerModel",
    "LinformerMultiheadAttention",
    "Projection",
    "align",
    "capture",
    "convert",
    "distill",
    "effective_attention",
    "embed",
    "finetune",
    "kernels",
    "load_linformer",
    "pack_weights",
    "parameter_groups",
    "path_of",
    "predict",
]

_MODULES = {
    "AlignmentResult": "longform_text.training.alignment.run",
    "AlignmentSettings": "longform_text.training.alignment.settings",
    "AlignmentSource": "longform_text.training.alignment.settings",
    "Classifier": "longform_text.inference.classifiers",
    "ConversionResult": "longform.conversion.convert",
    "DistillationResult": "longform_text.training.distillation.run",
    "DistillationSettings": "longform_text.training.distillation.settings",
    "Encoder": "longform_text.inference.encoders",
    "FinetuningResult": "longform_text.training.finetuning.run",
    "FinetuningSettings": "longform_text.training.finetuning.settings",
    "Index": "longform_text.search.index",
    "InferenceResult": "longform_text.inference.settings",
    "InferenceSettings": "longform_text.inference.settings",
    "LinformerAttention": "longform.layers.attention",
    "LinformerConfig": "longform.models.configuration_linformer",
    "LinformerEncoder": "longform.layers.encoder",
    "LinformerEncoderLayer": "longform.layers.multihead",
    "LinformerForCausalLM": "longform.models.task_heads",
    "LinformerForMaskedLM": "longform.models.task_heads",
    "LinformerForQuestionAnswering": "longform.models.task_heads",
    "LinformerForSequenceClassification": "longform.models.task_heads",
    "LinformerForTokenClassification": "longform.models.task_heads",
    "LinformerModel": "longform.models.modeling_linformer",
    "LinformerMultiheadAttention": "longform.layers.multihead",
    "Projection": "longform.layers.options",
    "align": "longform_text.training.alignment.run",
    "capture": "longform.models.graphs",
    "convert": "longform.conversion.convert",
    "distill": "longform_text.training.distillation.run",
    "effective_attention": "longform.layers.effective_attention",
    "embed": "longform_text.inference.run",
    "finetune": "longform_text.training.finetuning.run",
    "kernels": "longform.kernels",
    "load_linformer": "longform.conversion.packages",
    "pack_weights": "longform.models.inference",
    "parameter_groups": "longform.layers.parameter_groups",
    "path_of": "longform.conversion.local",
    "predict": "longform_text.inference.run",
}

cap_torch()
enter_late()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'longform' has no attribute {name!r}{_near(name)}")
    module = import_module(_MODULES[name])
    value = globals()[name] = module if _MODULES[name] == f"longform.{name}" else getattr(module, name)
    return value


def _near(name: str) -> str:
    """The end of a message about an unknown ``name``: what other packages call so, or what is near it."""
    if name.startswith("_"):
        return ""
    others = {"Linformer": "LinformerEncoder", "LinformerSelfAttention": "LinformerAttention"}
    others["LinformerLM"] = "LinformerForMaskedLM"
    return f"; did you mean {others[name]!r}?" if name in others else did_you_mean(name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
