"""The part of a batch that is a process's, checked to be of the same texts.

Axes: B batch, n tokens of the whole texts, m tokens of a part.
"""

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from longform.distributed.parts import Part, sequence_group
from longform.errors import InputError
from longform.functional.masks import blank_padding, check_one_text, checked_mask, moved, text_first
from longform.layers.embeddings import Embeddings
from longform.models.modeling_linformer import LinformerPreTrainedModel


def digest(given: Mapping[str, Any]) -> int:
    """A number of 63 bits for the tensors of ``given``, any shapes and dtypes: names, shapes and contents."""
    content = hashlib.blake2b(digest_size=8)
    for name in sorted(given):
        value = given[name]
        if isinstance(value, Tensor):
            content.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
            content.update(value.detach().contiguous().cpu().flatten().view(torch.uint8).numpy())
    return int.from_bytes(content.digest()) >> 1


def check_same_texts(given: Mapping[str, Any], group: ProcessGroup, device: torch.device) -> None:
    """Compare the tensors of ``given`` over the processes of ``group``, which tell each other 8 bytes.

    Raises InputError in all of them where they differ.
    """
    own = torch.tensor([digest(given)], device=device)
    found = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(found, own, group)
    digests = [int(x) for x in found]
    odd = [rank for rank, each in enumerate(digests) if each != digests[0]]
    if odd:
        shapes = {name: tuple(value.shape) for name, value in given.items() if isinstance(value, Tensor)}
        raise InputError(
            f"the processes that share a text out were given different ones: rank {odd[0]} has not what rank 0 has "
            f"(here, rank {torch.distributed.get_rank(group)}: {shapes}); give each of them the same whole batch, of "
            "which it takes its part"
        )


CUT = ("input_ids", "inputs_embeds", "token_type_ids", "position_ids")


def give_part(
    model: LinformerPreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a model's forward for the part of the texts that is this process's."""
    given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})
    _check_given(model, given)
    sequence = sequence_group(model)
    tokens = given.get("input_ids") if given.get("inputs_embeds") is None else given["inputs_embeds"]
    if not isinstance(tokens, Tensor) or tokens.shape[1] == 0:
        return (), given  # which the model itself refuses
    if not torch.compiler.is_compiling():
        check_same_texts(given, sequence.group, tokens.device)
    batch, length = tokens.shape[:2]
    if length > model.config.max_position_embeddings:
        return (), given
    mask = checked_mask(given.get("attention_mask"), batch=batch, length=length)
    order = text_first(mask)
    part = sequence.begin(length, mask if mask is None or order is None else moved(mask, order.there), order)
    if part is None:
        return (), given
    return (), _cut(model, given, mask, part)


def _positions(model: LinformerPreTrainedModel, whole: dict[str, Tensor], length: int) -> Tensor:
    embeddings = model.base_model.get_submodule("embeddings")
    assert isinstance(embeddings, Embeddings)
    return embeddings.positions(whole.get("input_ids"), length, next(iter(whole.values())).device)


def _checked_positions(places: Tensor, mask: Tensor | None) -> Tensor:
    """``places`` (n), (1, n) or (B, n) of whole texts, checked to be of one text a row, which a part does not show.

    Padding goes on with the text's last place: a part has no mask, and would take a 0 there for another text.
    """
    check_one_text(places, mask)
    if mask is None:
        return places
    return places.where(mask, places.masked_fill(~mask, 0).cummax(dim=1).values)


def _check_lengths(whole: Mapping[str, Tensor], length: int) -> None:
    for name, x in whole.items():
        if x.shape[min(1, x.dim() - 1)] != length:
            raise InputError(f"{name} has shape {tuple(x.shape)}, and the texts have {length} tokens")


def _cut(model: LinformerPreTrainedModel, given: dict[str, Any], mask: Tensor | None, part: Part) -> dict[str, Any]:
    """``given`` for the tokens of ``part``: texts moved to their first token, with their positions; no mask."""
    found = {name: value for name, value in given.items() if name != "attention_mask"}
    if found.get("inputs_embeds") is not None:
        found["inputs_embeds"] = blank_padding(found["inputs_embeds"], mask)
    whole = {name: found[name] for name in CUT if found.get(name) is not None}
    _check_lengths(whole, part.length)
    if part.order is not None:
        whole = {name: moved(x, part.order.there) for name, x in whole.items()}
    if "position_ids" in whole:
        whole["position_ids"] = _checked_positions(whole["position_ids"], part.mask)
    else:
        whole["position_ids"] = _positions(model, whole, part.length)
    for name, x in whole.items():
        found[name] = part.own(x) if x.dim() > 1 else x[part.start : part.stop]
    return found


def _check_given(model: LinformerPreTrainedModel, given: dict[str, Any]) -> None:
    if given.get("labels") is not None:
        raise InputError("labels: a loss is of whole texts, and each process has a part of them; train in one process")
    asked = given.get("output_attentions")
    if model.config.output_attentions if asked is None else asked:
        raise InputError("output_attentions: no process has the whole text, and so the weights; run one process")
    if given.get("query_expansion_positions") is not None:
        raise InputError("query_expansion_positions is for short queries, which one process reads: run one process")
