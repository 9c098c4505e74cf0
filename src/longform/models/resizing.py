"""Another maximal length for a model that has weights already: positions, E, F, configuration."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from transformers import PreTrainedModel

from longform.functional.positions import extend_positions
from longform.functional.projection import base_slot_size
from longform.layers.geometry import POOLED
from longform.layers.sequence_projection import ConvolutionProjection, DenseProjection
from longform.models.configuration_linformer import LinformerConfig

Lengths = int | list[int] | list[list[int]]


def stretch(values: Tensor, length: int) -> Tensor:
    """Each row of values (g, r, N) resampled to ``length`` columns and rescaled so that its sum stays."""
    wide = interpolate(values, size=length, mode="linear", align_corners=False)
    return wide * (values.shape[-1] / length)


def grown_slots(projected_length: Lengths, *, old: int, new: int) -> Lengths:
    """k for ``new`` tokens at the slot size that ``projected_length`` gives ``old`` tokens."""
    if isinstance(projected_length, int):
        return min(new, -(-new // base_slot_size(max_length=old, slots=projected_length)))
    return [grown_slots(entry, old=old, new=new) for entry in projected_length]  # ty: ignore[invalid-explicit-return]


def resized_config(config: LinformerConfig, length: int, projected_length: Lengths | None) -> LinformerConfig:
    """A checked copy of ``config`` for ``length`` tokens."""
    slots = projected_length
    if slots is None and config.projection in POOLED:
        slots = grown_slots(config.projected_length, old=config.max_position_embeddings, new=length)
    values: dict[str, Any] = config.to_dict() | {"max_position_embeddings": length}
    values["projected_length"] = copy.deepcopy(config.projected_length if slots is None else slots)
    return type(config)(**values)


@torch.no_grad()
def resize_sequence_length(
    model: PreTrainedModel, length: int, *, projected_length: int | None, positions: str
) -> None:
    """See ``LinformerPreTrainedModel.resize_sequence_length``. Nothing is changed if an option is refused."""
    base: Any = model.base_model  # a LinformerModel, whose module imports this one
    config = resized_config(model.config, length, projected_length)  # ty: ignore[invalid-argument-type]  a LinformerConfig
    table = base.embeddings.position_embeddings
    rows = extend_positions(table.weight, length=length, offset=config.position_offset, method=positions)
    fresh = type(base)(config).to(device=table.weight.device, dtype=table.weight.dtype)
    _carry_projections(base.encoder, fresh.encoder)
    for old, new in zip(base.encoder.layers, fresh.encoder.layers, strict=True):
        for name in ("query", "key", "value", "output"):
            setattr(new.attention, name, getattr(old.attention, name))
        if old.attention.memory_bias is not None and new.attention.memory_bias is not None:
            new.attention.memory_bias.copy_(old.attention.memory_bias)
        old.attention = new.attention.train(old.attention.training)
    base.encoder.shared_projection = fresh.encoder.shared_projection
    base.embeddings.position_embeddings = nn.Embedding.from_pretrained(rows, freeze=not table.weight.requires_grad)
    for key in ("max_position_embeddings", "projected_length"):
        setattr(model.config, key, getattr(config, key))
        setattr(base.config, key, getattr(config, key))


def _carry_projections(old: nn.Module, new: nn.Module) -> None:
    mates = dict(new.named_modules())
    for name, source in old.named_modules():
        target = mates.get(name)
        if isinstance(source, DenseProjection) and isinstance(target, DenseProjection):
            _carry_matrices(source, target)
        elif isinstance(source, ConvolutionProjection) and isinstance(target, ConvolutionProjection):
            for before, after in zip(source.kernels(), target.kernels(), strict=True):
                same = before.shape == after.shape
                after.copy_(before if same else stretch(before, after.shape[-1]))


def _carry_matrices(source: DenseProjection, target: DenseProjection) -> None:
    """A learned E is stretched; fixed random columns are kept, and new ones are new draws of the same N(0, 1/k)."""
    for before, after in zip(source.matrices(), target.matrices(), strict=True):
        if before.shape[1] != after.shape[1]:
            continue  # another k: nothing of the old slots is left
        if isinstance(after, nn.Parameter):
            after.copy_(stretch(before, after.shape[-1]))
        else:
            shared = min(before.shape[-1], after.shape[-1])
            after[..., :shared] = before[..., :shared]
