"""A model whose texts are shared out among processes: ``sequence_parallel``.

Two kinds of modules look at more than one token, attention and pooling; both are replaced by ones that know their part.
All others see the tokens of a part as they would a text's. A hook before the model's forward cuts the texts.
"""

import math
from typing import TypeVar

import torch
from torch import nn
from torch.distributed import ProcessGroup

from longform.distributed.attention import ParallelAttention
from longform.distributed.inputs import give_part
from longform.distributed.parts import SEQUENCE_GROUP, SequenceGroup
from longform.distributed.pooling import ParallelPooling
from longform.errors import ConfigurationError
from longform.layers.attention import LinformerAttention
from longform.layers.sequence_projection import RunProjection
from longform.models.modeling_linformer import LinformerModel, LinformerPreTrainedModel
from longform.models.task_heads import (
    LinformerForMaskedLM,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
)
from longform.models.text_reader import Pooling

Model = TypeVar("Model", bound=LinformerPreTrainedModel)
SERVED = (
    LinformerModel,
    LinformerForSequenceClassification,
    LinformerForMaskedLM,
    LinformerForTokenClassification,
)


def sequence_parallel(model: Model, group: ProcessGroup | None = None) -> Model:
    """Share each text out among the processes of ``group`` (None: all), in place; returns the same model.

    Every process calls the model with the same whole batch and computes a part of its tokens: rank r the r-th of P even
    parts. What is returned of tokens (hidden states, logits) is of these; ``gather_tokens`` has them of all. What is of
    texts (pooled states, logits of classes) is of the whole, the same in every process. Short texts, of up to
    two windows or fewer blocks than processes, are computed by each as a whole.

    A layer sends its k slots and one block of a window to either side, whatever the length. Parameters keep
    their names. Gradients pass through the messages; a loss is the caller's.

    Raises ConfigurationError for another model, and for one of rotary positions, local layers, selected slots, keys
    that heads share, latents or "content_and_place"; where torch.distributed was not initialised, for more processes
    than the longest text has blocks, and for a window across everything. The model then raises InputError where
    processes are given different texts, and for attention weights.
    """
    if not isinstance(model, SERVED):
        raise ConfigurationError(
            f"texts of {type(model).__name__} cannot be shared out among processes; those of "
            f"{', '.join(served.__name__ for served in SERVED)} can"
        )
    _check_layers(model)
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise ConfigurationError(
            "there is no group of processes: start with torchrun --nproc-per-node N, and call "
            "torch.distributed.init_process_group() first"
        )
    if SEQUENCE_GROUP in vars(model):
        raise ConfigurationError("this model shares its texts out already: call sequence_parallel once")
    sequence = SequenceGroup(_group(group), _block(model), 2 * (_window(model) or 0))
    _check_size(model, sequence)
    for module in list(model.modules()):
        _share_out(module, sequence)
    vars(model)[SEQUENCE_GROUP] = sequence
    model.register_forward_pre_hook(give_part, with_kwargs=True)
    return model


def _check_layers(model: LinformerPreTrainedModel) -> None:
    """Raise ConfigurationError for layers whose parts nobody has worked out."""
    config = model.config
    shared = config.num_key_value_heads not in (None, config.num_attention_heads)
    found = {
        "rope_parameters": config.rope_parameters is not None,
        "layer_types": "sliding_attention" in (config.layer_types or ()),
        "num_key_value_heads": shared,
        "causal": config.causal,
        "selected_slots": config.selected_slots > 0,
        "projection": config.projection in ("latent", "content_and_place"),
    }
    reasons = ", ".join(name for name, holds in found.items() if holds)
    if reasons:
        raise ConfigurationError(
            f"texts of this model cannot be shared out among processes, for its {reasons}: rotary positions, local "
            "layers, keys that heads share, latents and mixtures of places run in one process"
        )


def _group(group: ProcessGroup | None) -> ProcessGroup:
    """``group``, or all processes."""
    found = torch.distributed.group.WORLD if group is None else group
    assert found is not None
    return found


def _share_out(module: nn.Module, sequence: SequenceGroup) -> None:
    if isinstance(module, LinformerAttention):
        module.__class__ = ParallelAttention  # as torch's fully_shard does: parameters stay where they are
        vars(module)["sequence"] = sequence
    for name, child in module.named_children():
        if isinstance(child, Pooling):
            setattr(module, name, ParallelPooling(child.kind, sequence))


def _window(model: LinformerPreTrainedModel) -> int | None:
    return model.config.attention_window


def _block(model: LinformerPreTrainedModel) -> int:
    """Length in tokens of the blocks between which texts may be cut: a window, else the largest slot, else one token.

    Where a short convolution reaches further than one block, the block is a multiple that holds its reach.
    """
    window = _window(model)
    runs = (part.sizes[-1] for part in model.modules() if isinstance(part, RunProjection))
    block = window or math.lcm(*runs)
    reach = (model.config.short_convolution or 0) // 2
    return block * max(1, -(-reach // block))


def _check_size(model: LinformerPreTrainedModel, sequence: SequenceGroup) -> None:
    longest, window = model.config.max_position_embeddings, _window(model)
    if window is not None and 2 * window >= longest:
        raise ConfigurationError(
            f"attention_window={window} reaches across max_position_embeddings={longest}: every token sees all others, "
            "and there are no parts that could be computed apart; convert with a narrower window"
        )
    blocks = -(-longest // sequence.block)
    if sequence.size > blocks:
        raise ConfigurationError(
            f"a group of {sequence.size} processes is larger than the {blocks} blocks of {sequence.block} tokens that "
            f"the longest text (max_position_embeddings={longest}) has, between which it is cut: use at most {blocks}"
        )
