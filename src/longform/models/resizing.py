"""Another maximal length for a model that has weights already: positions, E, F, configuration."""

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from transformers import PreTrainedModel

from longform.choices import POOLED
from longform.errors import ConfigurationError
from longform.functional.positions.tables import extend_positions
from longform.functional.slots import base_slot_size
from longform.layers.attention import LinformerAttention
from longform.layers.sequence_projection import DenseProjection, SequenceProjection
from longform.models.configuration_linformer import LinformerConfig

Lengths = int | list[int] | list[list[int]]
Owner = tuple[SequenceProjection, int]  # a projection, and the place of a head in it


def stretch(values: Tensor, length: int) -> Tensor:
    """Each row of values (g, r, N) resampled to ``length`` columns and rescaled so that its sum stays."""
    wide = interpolate(values, size=length, mode="linear", align_corners=False)
    return wide * (values.shape[-1] / length)


def grown_slots(projected_length: Lengths, *, old: int, new: int) -> Lengths:
    """k for ``new`` tokens at the slot size that ``projected_length`` gives ``old`` tokens."""
    if isinstance(projected_length, int):
        return min(new, -(-new // base_slot_size(max_length=old, slots=projected_length)))
    return [grown_slots(entry, old=old, new=new) for entry in projected_length]  # ty: ignore[invalid-explicit-return]


def check_extension(config: LinformerConfig, positions: str) -> None:
    """Raise ConfigurationError for ``positions`` that only a table of positions can have."""
    if config.rope_parameters is not None and positions == "interpolate":
        raise ConfigurationError(
            "positions='interpolate' stretches a table of positions, and a model with rotary positions has none: its "
            "angles go on as they are with positions='tile', the default"
        )


def resized_config(config: LinformerConfig, length: int, projected_length: Lengths | None) -> LinformerConfig:
    """A checked copy of ``config`` for ``length`` tokens."""
    values: dict[str, Any] = copy.deepcopy(config.to_dict()) | {"max_position_embeddings": length}
    if projected_length is not None:
        values |= {"projected_length": projected_length, "tokens_per_slot": None}
    elif config.projection in POOLED and config.projected_length is not None:
        before: Any = config.projected_length
        values["projected_length"] = grown_slots(before, old=config.max_position_embeddings, new=length)
    return type(config)(**values)


@torch.no_grad()
def resize_sequence_length(
    model: PreTrainedModel, length: int, *, projected_length: Lengths | None, positions: str
) -> None:
    """See ``LinformerPreTrainedModel.resize_sequence_length``. Nothing is changed if an option is refused."""
    base: Any = model.base_model  # a LinformerModel, whose module imports this one
    config = resized_config(model.config, length, projected_length)  # ty: ignore[invalid-argument-type]  a LinformerConfig
    check_extension(config, positions)
    table, words = base.embeddings.position_embeddings, base.embeddings.word_embeddings.weight
    if table is not None:
        rows = extend_positions(table.weight, length=length, offset=config.position_offset, method=positions)
    fresh = type(base)(config).to(device=words.device, dtype=words.dtype)
    _carry_projections(base.encoder, fresh.encoder)
    for old, new in zip(base.encoder.layers, fresh.encoder.layers, strict=True):
        for name in ("query", "key", "value", "output", "convolution"):
            setattr(new.attention, name, getattr(old.attention, name))
        before, after = (getattr(layer.attention, "memory_bias", None) for layer in (old, new))
        if before is not None and after is not None:
            after.copy_(before)
            after.requires_grad_(before.requires_grad)
        old.attention = new.attention.train(old.attention.training)
    base.encoder.shared_projection = fresh.encoder.shared_projection
    if table is not None:
        base.embeddings.position_embeddings = nn.Embedding.from_pretrained(rows, freeze=not table.weight.requires_grad)
    for key in ("max_position_embeddings", "projected_length", "tokens_per_slot"):
        setattr(model.config, key, getattr(config, key))
        setattr(base.config, key, getattr(config, key))


def _carry_projections(old: Any, new: Any) -> None:
    """E, F and kernels of an encoder, for another."""
    if old.shared_projection is not None and new.shared_projection is not None:
        _carry_head((old.shared_projection, 0), (new.shared_projection, 0))
    for source, target in zip(old.layers, new.layers, strict=True):
        if not isinstance(source.attention, LinformerAttention):
            continue
        owners, heirs = _owners(source.attention), _owners(target.attention)
        carried = [head for head in heirs if head in owners]
        for head in reversed(carried):  # where heads share, the first of them decides
            _carry_head(owners[head], heirs[head])


def _carry_head(owner: Owner, heir: Owner) -> None:
    """Copy what one head has of a projection to the same head of another."""
    (projection, place), (its_projection, its_place) = owner, heir
    sinks = projection.sinks if isinstance(projection, DenseProjection) else 0
    for before, after in zip(projection.tensors(), its_projection.tensors(), strict=True):
        row, its_row = (at if len(x) > 1 else 0 for at, x in ((place, before), (its_place, after)))
        drawn = not isinstance(after, nn.Parameter)
        if not drawn:
            after.requires_grad_(before.requires_grad)
        _carry_rows(before[row], after[its_row], drawn=drawn, sinks=sinks)


def _owners(attention: LinformerAttention) -> dict[int, Owner]:
    """Head -> its projection, and its place among the heads of that; heads of one k have one projection."""
    own = cast("list[SequenceProjection]", [*attention.groups])  # none where the window covers all
    projections = zip(attention.head_groups, own, strict=False)
    found = {head: (projection, place) for heads, projection in projections for place, head in enumerate(heads)}
    return dict(sorted(found.items()))


def _carry_rows(before: Tensor, after: Tensor, *, drawn: bool, sinks: int) -> None:
    """E (k, N), a kernel (d, C) or scores (1, D) into another of as many rows; learned ones are stretched, but for
    ``sinks`` columns.

    ``drawn``: fixed random columns are kept, and new ones are new draws of the same N(0, 1/k).
    """
    if before.shape[0] != after.shape[0]:
        return  # another k: nothing of the old slots is left
    if drawn:
        shared = min(before.shape[1], after.shape[1])
        after[:, :shared] = before[:, :shared]
    else:
        rest = before[None, :, sinks:]
        wide = rest if before.shape == after.shape else stretch(rest, after.shape[1] - sinks)
        after.copy_(torch.cat([before[:, :sinks], wide[0]], dim=1))
