"""Linear-time Transformer encoders for long documents.

``import longform`` is quick: a name of ``__all__`` is imported, and torch with it, when it is first asked for. Hugging
Face's Auto classes know the models from then on, whichever of the two packages was imported first.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from longform.auto_tables import enter_late
from longform.choices import did_you_mean

if TYPE_CHECKING:
    from longform import kernels
    from longform.conversion.convert import ConversionResult, convert
    from longform.conversion.packages import load_linformer
    from longform.inference.classifiers import Classifier
    from longform.inference.encoders import Encoder
    from longform.inference.run import embed, predict
    from longform.inference.settings import InferenceResult, InferenceSettings
    from longform.layers.attention import LinformerAttention
    from longform.layers.effective_attention import effective_attention
    from longform.layers.encoder import LinformerEncoder
    from longform.layers.geometry import Projection
    from longform.layers.multihead import LinformerEncoderLayer, LinformerMultiheadAttention
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
    from longform.search.index import Index
    from longform.training.alignment.run import AlignmentResult, align
    from longform.training.alignment.settings import AlignmentSettings, AlignmentSource
    from longform.training.distillation.run import DistillationResult, distill
    from longform.training.engine.settings import DistillationSettings, FinetuningSettings
    from longform.training.finetuning.run import FinetuningResult, finetune

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
    "predict",
]

_MODULES = {
    "AlignmentResult": "training.alignment.run",
    "AlignmentSettings": "training.alignment.settings",
    "AlignmentSource": "training.alignment.settings",
    "Classifier": "inference.classifiers",
    "ConversionResult": "conversion.convert",
    "DistillationResult": "training.distillation.run",
    "DistillationSettings": "training.engine.settings",
    "Encoder": "inference.encoders",
    "FinetuningResult": "training.finetuning.run",
    "FinetuningSettings": "training.engine.settings",
    "Index": "search.index",
    "InferenceResult": "inference.settings",
    "InferenceSettings": "inference.settings",
    "LinformerAttention": "layers.attention",
    "LinformerConfig": "models.configuration_linformer",
    "LinformerEncoder": "layers.encoder",
    "LinformerEncoderLayer": "layers.multihead",
    "LinformerForCausalLM": "models.task_heads",
    "LinformerForMaskedLM": "models.task_heads",
    "LinformerForQuestionAnswering": "models.task_heads",
    "LinformerForSequenceClassification": "models.task_heads",
    "LinformerForTokenClassification": "models.task_heads",
    "LinformerModel": "models.modeling_linformer",
    "LinformerMultiheadAttention": "layers.multihead",
    "Projection": "layers.geometry",
    "align": "training.alignment.run",
    "capture": "models.graphs",
    "convert": "conversion.convert",
    "distill": "training.distillation.run",
    "effective_attention": "layers.effective_attention",
    "embed": "inference.run",
    "finetune": "training.finetuning.run",
    "kernels": "kernels",
    "load_linformer": "conversion.packages",
    "pack_weights": "models.inference",
    "parameter_groups": "layers.parameter_groups",
    "predict": "inference.run",
}

enter_late()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'longform' has no attribute {name!r}{_near(name)}")
    module = import_module(f"longform.{_MODULES[name]}")
    value = globals()[name] = module if name == _MODULES[name] else getattr(module, name)
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
