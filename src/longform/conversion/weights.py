"""The weights of a conversion: each tensor of the source gets a place or a reason, each place a tensor or a reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from longform.conversion.families.family import Family, KeyRules, Pattern, modern_name
from longform.conversion.report import BUFFER, COPIED, CUT, DROPPED, EXTENDED, TIED, NewTensor, TensorRecord
from longform.errors import ConversionError
from longform.functional.positions.tables import extend_positions
from longform.layers.sequence_projection import WeightedMeanProjection
from longform.models.modeling_linformer import LinformerPreTrainedModel
from longform.pretrained.weights import listed

HEAD_BIAS, DECODER_BIAS, DECODER_WEIGHT = "lm_head.bias", "lm_head.decoder.bias", "lm_head.decoder.weight"
WORDS, POSITIONS = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
NEW_PARAMETERS = {  # part of a name: why the source lacks such a tensor
    ".memory_bias": "memory beside the window, starts at 0",
    ".scores.": "scores of tokens in their slots, start at 0: means",
    ".attention.convolution.": "convolution in front of attention, starts at 0",
    ".attention.groups.": "projection",
    "shared_projection.": "projection",
}
HEAD_PARTS = ("lm_head.", "classifier.", "qa_outputs.", "head.")


@dataclass
class Placement:
    """Tensors by their Longform name, each with its source name; and what has been decided about the others."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    records: list[TensorRecord] = field(default_factory=list)

    def drop(self, target: str, action: str, note: str) -> None:
        """Take a tensor out again, with the reason."""
        tensor, source = self.tensors.pop(target), self.sources.pop(target)
        self.records.append(TensorRecord(source, target, action, tuple(tensor.shape), note))

    def rename(self, target: str, other: str) -> None:
        """Give a tensor another Longform name."""
        self.tensors[other], self.sources[other] = self.tensors.pop(target), self.sources.pop(target)

    def find(self, suffix: str) -> Tensor | None:
        """The tensor whose Longform name ends with ``suffix``."""
        return next((tensor for name, tensor in self.tensors.items() if name.endswith(suffix)), None)


def place_tensors(tensors: Mapping[str, Tensor], *, rules: KeyRules, family: Family, task: str) -> Placement:
    """Give each source tensor its Longform name, or the reason why it has none.

    Raises ConversionError, listing them, where names are unknown or two of them are one.
    """
    placement, unknown = Placement(), []
    for key, tensor in split_fused(tensors, family).items():
        target = rules.rename(key)
        if target is not None and target in placement.tensors:
            raise ConversionError(f"the source holds one tensor twice: {placement.sources[target]} and {key}")
        if target is not None:
            placement.tensors[target], placement.sources[target] = tensor, key
            continue
        found = _reason(key, family, task)
        if found is None:
            unknown.append(key)
        else:
            placement.records.append(TensorRecord(key, None, found[0], tuple(tensor.shape), found[1]))
    if unknown:
        raise ConversionError(
            f"the source has {len(unknown)} tensors that a {family.name} does not have, so that its result would "
            f"not be the source's: {listed(unknown)}"
        )
    _settle_head_bias(placement)
    return placement


def split_fused(tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """The tensors, those that hold several as parts: name[0], name[1] and so on."""
    patterns = [(Pattern(template, family.base_name), parts) for template, parts in family.fused.items()]
    found: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        parts = next((parts for pattern, parts in patterns if pattern.match(modern_name(key)) is not None), None)
        if parts is None or tensor.shape[0] % parts:
            found[key] = tensor
        else:
            found |= {f"{key}[{i}]": part.clone() for i, part in enumerate(tensor.chunk(parts))}
    return found


def settle_tied_decoder(placement: Placement, *, tied: bool) -> bool:
    """Whether the masked-language head's decoder is the word vectors; if so, its copy is taken out.

    ``tied``: what the source's configuration says; a file with two different tables overrules it, as in transformers.
    """
    decoder, words = placement.tensors.get(DECODER_WEIGHT), placement.find(WORDS)
    if not tied or decoder is None:
        return tied
    if words is None:
        placement.rename(DECODER_WEIGHT, "linformer." + WORDS)
        return True
    if decoder.shape != words.shape or not torch.equal(decoder, words):
        return False
    placement.drop(DECODER_WEIGHT, TIED, "the word embeddings")
    return True


@torch.no_grad()
def fill_model(
    model: LinformerPreTrainedModel,
    placement: Placement,
    *,
    positions: str,
    new_head: bool,
    zeros: tuple[str, ...] = (),
) -> tuple[list[TensorRecord], list[NewTensor]]:
    """Copy the placed tensors into ``model``, the position table at its length; ``zeros``: ends of names that the
    source has nothing for.

    Returns what became of each source tensor, and the tensors that are new. Raises ConversionError on tensors that
    the configuration has no place for, on other shapes, and on places that nothing fills.
    """
    own = model.state_dict()
    records = list(placement.records)
    filled: dict[str, Tensor] = {}
    for name, tensor in placement.tensors.items():
        if name in own and tensor.is_floating_point():
            filled[name], record = _fitted(model, placement.sources[name], name, tensor, positions)
            records.append(record)
    _check_left_over(placement, filled)
    _check_shapes(placement, filled, own)
    new = _new_tensors(model, own, filled, new_head=new_head, zeros=zeros)
    model.load_state_dict(filled, strict=False)
    for part in model.modules():
        if isinstance(part, WeightedMeanProjection):
            torch.nn.init.zeros_(part.scores.weight)
    return sorted(records, key=lambda record: record.source), new


def _reason(key: str, family: Family, task: str) -> tuple[str, str] | None:
    name = modern_name(key)
    for ignored in family.ignored:
        if Pattern(ignored.source, family.base_name).match(name) is not None:
            return (BUFFER if ignored.reason.startswith("buffer") else DROPPED), ignored.reason
    if any(Pattern(rule.source, family.base_name).match(name) is not None for rule in family.pooler):
        return DROPPED, "pooler, which the result has no use for"
    if family.has_head(task, [key]):
        return DROPPED, "the source's head, in place of which the result has a new one"
    if any(family.has_head(other, [key]) for other in family.heads):
        return DROPPED, f"head of another task; the result is for {task!r}"
    return None


def _settle_head_bias(placement: Placement) -> None:
    """BERT and RoBERTa hold the decoder's bias twice, under two names, of which a file has one or both."""
    bias = placement.tensors.get(HEAD_BIAS)
    if bias is None:
        return
    decoder_bias = placement.tensors.get(DECODER_BIAS)
    if decoder_bias is None:
        placement.rename(HEAD_BIAS, DECODER_BIAS)
    elif torch.equal(bias, decoder_bias):
        placement.drop(HEAD_BIAS, TIED, "the decoder's bias")
    else:
        placement.drop(HEAD_BIAS, DROPPED, "differs from the decoder's bias, which is the one that the source adds")


def _fitted(
    model: LinformerPreTrainedModel, source: str, name: str, tensor: Tensor, positions: str
) -> tuple[Tensor, TensorRecord]:
    shape = tuple(tensor.shape)
    offset, length = model.config.position_offset, model.config.max_position_embeddings
    known = shape[0] - offset if shape else 0
    if not name.endswith(POSITIONS) or known == length:
        return tensor, TensorRecord(source, name, COPIED, shape)
    table = extend_positions(tensor, length=length, offset=offset, method=positions)
    if length < known:
        return table, TensorRecord(source, name, CUT, shape, f"{known} -> {length} positions")
    return table, TensorRecord(source, name, EXTENDED, shape, f"{known} -> {length} positions, {positions}")


def _check_left_over(placement: Placement, filled: dict[str, Tensor]) -> None:
    left = [placement.sources[name] for name in placement.tensors if name not in filled]
    if left:
        raise ConversionError(
            f"{len(left)} tensors of the source do not fit its configuration (more layers than config.json says, or "
            f"numbers that are not floating point, as in a quantised model): {listed(left)}"
        )


def _check_shapes(placement: Placement, filled: dict[str, Tensor], own: Mapping[str, Tensor]) -> None:
    wrong = [
        f"{placement.sources[name]} is {tuple(tensor.shape)}, the configuration needs {tuple(own[name].shape)}"
        for name, tensor in filled.items()
        if tensor.shape != own[name].shape
    ]
    if wrong:
        raise ConversionError(f"the source's weights do not fit its configuration: {listed(wrong)}")


def _new_tensors(
    model: LinformerPreTrainedModel,
    own: Mapping[str, Tensor],
    filled: dict[str, Tensor],
    *,
    new_head: bool,
    zeros: tuple[str, ...],
) -> list[NewTensor]:
    new, missing = [], []
    for name, tensor in own.items():
        shape = tuple(tensor.shape)
        if name in filled or (name == DECODER_WEIGHT and model.config.tie_word_embeddings):
            continue
        reason = next((NEW_PARAMETERS[part] for part in NEW_PARAMETERS if part in name), None)
        if reason is not None:
            new.append(NewTensor(name, shape, reason))
        elif name.endswith(zeros):
            new.append(NewTensor(name, shape, "zero: the source has no such bias"))
        elif new_head and name.startswith(HEAD_PARTS):
            new.append(NewTensor(name, shape, "new head, not trained yet"))
        else:
            missing.append(name)
    if missing:
        raise ConversionError(
            f"the source lacks {len(missing)} tensors that its configuration calls for, so its checkpoint is "
            f"incomplete; the Longform names are: {listed(missing)}"
        )
    return new
