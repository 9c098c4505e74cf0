"""A Longform for texts of another length, with everything that knows it: model, tokenizer, report."""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.conversion.report import COPIED, CUT, DROPPED, EXTENDED, NewTensor, TensorRecord
from longform.conversion.source import Source
from longform.conversion.tasks import MODELS
from longform.errors import ConversionError
from longform.models.configuration_linformer import LinformerConfig
from longform.models.modeling_linformer import LinformerPreTrainedModel
from longform.pretrained.tokenizers import fit_tokenizer

TIED, UNUSED = "lm_head.decoder.weight", ("pooler.", "linformer.pooler.")


class Lengthened(NamedTuple):
    """A Longform of another length, its task, and what became of the tensors."""

    model: LinformerPreTrainedModel
    task: str
    records: list[TensorRecord]
    new: list[NewTensor]


def lengthen(
    source: Source, *, max_length: int, projected_length: Any, positions: str, options: dict[str, Any],
    unsaid: dict[str, Any],
) -> Lengthened:  # fmt: skip
    """The Longform ``source`` for ``max_length`` tokens; ``options``: everything else that ``convert`` was given, which
    is as it is where nothing was said: ``unsaid``.

    Raises ConversionError where weights are missing, and where an option asks for another model than it is.
    """
    task = next((task for task, cls in MODELS.items() if cls.__name__ in source.architectures), None)
    if task is None:
        raise ConversionError(f"the source is a Longform of an unknown class: {', '.join(source.architectures)}")
    _check_options(options, source.config, task, unsaid)
    model = _filled(MODELS[task](copy.deepcopy(source.config)), source.tensors).eval()
    k = None if projected_length == "auto" else projected_length
    model.resize_sequence_length(max_length, projected_length=k, positions=positions)
    model.tie_weights()
    after = model.state_dict()
    records = [_record(name, tensor, after.get(name)) for name, tensor in sorted(source.tensors.items())]
    new = [
        NewTensor(name, tuple(tensor.shape), "memory beside the window, which no longer reaches across everything")
        for name, tensor in after.items()
        if name not in source.tensors and name != TIED
    ]
    return Lengthened(model, task, records, new)


def _check_options(options: dict[str, Any], config: Any, task: str, unsaid: dict[str, Any]) -> None:
    own = {name: getattr(config, name, None) for name in options} | {"task": task}
    other = [f"{name}={value!r}" for name, value in options.items() if value not in (unsaid.get(name), own[name])]
    if other:
        raise ConversionError(
            f"the source is a Longform already, of which the length alone is changed (max_length, projected_length, "
            f"positions), and not {', '.join(other)}: convert the original encoder for that"
        )


def _filled(model: LinformerPreTrainedModel, tensors: dict[str, Tensor]) -> LinformerPreTrainedModel:
    table = next((x for name, x in tensors.items() if name.endswith("word_embeddings.weight")), None)
    model = model if table is None else model.to(table.dtype)
    try:
        missing, unknown = model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ConversionError(f"the source's weights do not fit its configuration: {error}") from error
    tied = {TIED} if model.config.tie_word_embeddings else set()
    lacking, besides = sorted({*missing} - tied), [name for name in unknown if not name.startswith(UNUSED)]
    if lacking or besides:
        raise ConversionError(
            f"the source's checkpoint does not fit its configuration: it lacks {', '.join(lacking) or 'nothing'}, and "
            f"holds {', '.join(besides) or 'nothing'} besides"
        )
    return model


def _record(name: str, before: Tensor, after: Tensor | None) -> TensorRecord:
    shape = tuple(before.shape)
    if after is None:
        return TensorRecord(name, None, DROPPED, shape, "the window reaches across everything, or no pooler is used")
    if after.shape == before.shape:
        return TensorRecord(name, name, COPIED if torch.equal(after, before) else EXTENDED, shape)
    action = EXTENDED if after.numel() > before.numel() else CUT
    return TensorRecord(name, name, action, shape, f"{shape} -> {tuple(after.shape)}")


def lengthened_tokenizer(tokenizer: Any, config: LinformerConfig, *, name: str) -> Any:
    """A copy of the tokenizer for the model of ``config``, padding on the right, with nothing cut or padded unasked.

    Raises ConfigurationError where it has more tokens than the model, whose source is called ``name``.
    """
    if tokenizer is None:
        return None
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.padding_side = "right"
    for cut in ("max_length", "stride", "truncation_strategy"):  # what the source's tokenizer.json cut at
        tokenizer.init_kwargs.pop(cut, None)
    if config.type_vocab_size <= 1:
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
    return fit_tokenizer(tokenizer, config, name=name)
