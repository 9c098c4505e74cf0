"""The Linformer models for Hugging Face's Auto classes, entered when the first LinformerConfig is made.

Why then, and how ``AutoConfig`` learns of them: longform.models.auto_hook.
"""

from functools import cache

from transformers import (
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


@cache
def register_models() -> None:
    """Make ``AutoModel.from_pretrained`` and its kin know LinformerConfig; models of a user's own choice stay."""
    for auto, model in AUTO_MODELS.items():
        if LinformerConfig not in auto._model_mapping:
            auto.register(LinformerConfig, model)
