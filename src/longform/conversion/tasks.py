"""Tasks of models: the Longform class of each, the task of a source's class, and the head of a converted model."""

from dataclasses import dataclass
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from longform.conversion.families.family import Family
from longform.conversion.source import Source
from longform.errors import ConversionError
from longform.models.modeling_linformer import LinformerModel, LinformerPreTrainedModel
from longform.models.task_heads import (
    LinformerForMaskedLM,
    LinformerForQuestionAnswering,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
)
from longform.pretrained.sentence_folder import activation_of, with_activation

MODELS: dict[str, type[LinformerPreTrainedModel]] = {
    "encoder": LinformerModel,
    "masked-lm": LinformerForMaskedLM,
    "sequence-classification": LinformerForSequenceClassification,
    "token-classification": LinformerForTokenClassification,
    "question-answering": LinformerForQuestionAnswering,
}
LABELLED = ("sequence-classification", "token-classification")

SUFFIXES = {
    "ForMaskedLM": "masked-lm",
    "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "encoder",
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


@dataclass(frozen=True)
class HeadPlan:
    """The task of the result, whether its head is new, and LinformerConfig's arguments for it."""

    task: str
    new: bool
    options: dict[str, Any]


def plan_head(
    source: Source,
    family: Family,
    task: str | None,
    num_labels: int | None,
    id2label: dict[int, str] | None,
    classifier_pooling: str | None,
) -> HeadPlan:
    """Decide the head of the result from what the source has and what was asked for; see ``convert``.

    Raises ConversionError where labels are given that the task does not have, or that contradict each other.
    """
    chosen, same_task = _task(source, family, task)
    _check_labels(chosen, num_labels, id2label)
    wanted = len(id2label) if id2label is not None else num_labels
    pools = chosen == "sequence-classification"
    own = family.options(source.config).get("classifier_pooling", "cls") if pools else None
    other_pooling = own is not None and classifier_pooling not in (None, own)
    new = not same_task or wanted not in (None, source.config.num_labels) or other_pooling
    options: dict[str, Any] = {"classifier_pooling": classifier_pooling or (not new and own) or "cls"}
    if chosen in LABELLED:
        options |= _label_options(source.config, same_task, wanted, id2label)
    if not new:
        options |= _activation_options(source, chosen)
    return HeadPlan(chosen, new and chosen != "encoder", options)


def _task(source: Source, family: Family, task: str | None) -> tuple[str, bool]:
    """The task of the result, and whether the source has the head for it."""
    found, folder = task_of(source.architectures, pretraining=family.pretraining), source.sentence_folder
    chosen = task or (folder.task if folder else found) or "encoder"
    return chosen, chosen == found or (found is None and family.has_head(chosen, source.tensors))


def _check_labels(task: str, num_labels: int | None, id2label: dict[int, str] | None) -> None:
    if task not in LABELLED and (num_labels is not None or id2label is not None):
        raise ConversionError(f"num_labels and id2label are for {' and '.join(LABELLED)}; the task is {task!r}")
    if num_labels is not None and id2label is not None and len(id2label) != num_labels:
        raise ConversionError(f"num_labels={num_labels}, but id2label has {len(id2label)} labels")


def _activation_options(source: Source, task: str) -> dict[str, Any]:
    folder = source.sentence_folder
    activation = activation_of(source.config, folder.settings if folder else None)
    if activation is None or task != "sequence-classification":
        return {}
    return with_activation(source.config, activation)


def _label_options(
    config: PreTrainedConfig, same_task: bool, wanted: int | None, id2label: dict[int, str] | None
) -> dict[str, Any]:
    if id2label is not None:
        kept = {"problem_type": config.problem_type} if same_task and wanted == config.num_labels else {}
        return {**kept, "id2label": dict(id2label), "label2id": {name: number for number, name in id2label.items()}}
    if wanted is not None and not (same_task and wanted == config.num_labels):
        return {"num_labels": wanted}
    if not same_task:
        return {}
    return {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}
