"""Tasks of models: the Longform class of each, and what the class name of a source says about its task."""

from longform.errors import ConversionError
from longform.models.modeling_linformer import LinformerModel, LinformerPreTrainedModel
from longform.models.task_heads import (
    LinformerForMaskedLM,
    LinformerForMultipleChoice,
    LinformerForQuestionAnswering,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
)

MODELS: dict[str, type[LinformerPreTrainedModel]] = {
    "encoder": LinformerModel,
    "masked-lm": LinformerForMaskedLM,
    "sequence-classification": LinformerForSequenceClassification,
    "token-classification": LinformerForTokenClassification,
    "question-answering": LinformerForQuestionAnswering,
    "multiple-choice": LinformerForMultipleChoice,
}
LABELLED = ("sequence-classification", "token-classification")
POOLING = ("sequence-classification", "multiple-choice")

SUFFIXES = {
    "ForMaskedLM": "masked-lm",
    "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "ForNextSentencePrediction": "encoder",
    "Model": "encoder",
}
DECODERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "DoubleHeadsModel")


def check_task(task: str | None) -> None:
    """Raise ConversionError unless ``task`` is None or one that Longform has a model for."""
    if task is not None and task not in MODELS:
        raise ConversionError(f"task={task!r} is not known; choose one of {', '.join(map(repr, MODELS))}, or None")


def task_of(architectures: list[str], *, pretraining: str) -> str | None:
    """The task of a source with these class names; ``pretraining`` is what ...ForPreTraining counts as.

    None where the names say nothing. Raises ConversionError on a decoder, and on ColBERT's own code.
    """
    for name in architectures:
        if name.endswith(DECODERS):
            raise ConversionError(
                f"the source is a decoder ({name}): it reads from left to right, Longform is an encoder that reads in "
                "both directions; convert an encoder, for instance a ...ForMaskedLM"
            )
        if name == "HF_ColBERT":
            raise ConversionError(
                "the source is a ColBERT as its first code saves it (HF_ColBERT): load it once with "
                "sentence_transformers.MultiVectorEncoder, save that with save_pretrained, and convert the folder"
            )
        if name.endswith("ForPreTraining"):
            return pretraining
        for suffix, task in SUFFIXES.items():
            if name.endswith(suffix):
                return task
    return None
