"""Linformer models under Hugging Face's Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from longform.models import task_heads
from longform.models.configuration_linformer import LinformerConfig
from longform.models.modeling_linformer import LinformerModel

AUTO_MODELS = {
    AutoModel: LinformerModel,
    AutoModelForMaskedLM: task_heads.LinformerForMaskedLM,
    AutoModelForSequenceClassification: task_heads.LinformerForSequenceClassification,
    AutoModelForTokenClassification: task_heads.LinformerForTokenClassification,
    AutoModelForQuestionAnswering: task_heads.LinformerForQuestionAnswering,
    AutoModelForMultipleChoice: task_heads.LinformerForMultipleChoice,
}


def register() -> None:
    """Make ``AutoModel.from_pretrained`` and its kin know model_type "linformer"; doing it twice is harmless."""
    AutoConfig.register(LinformerConfig.model_type, LinformerConfig, exist_ok=True)
    for auto, model in AUTO_MODELS.items():
        auto.register(LinformerConfig, model, exist_ok=True)
