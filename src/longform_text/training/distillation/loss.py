"""The loss of a distillation, its two models, and their agreement on documents that are kept apart.

Axes: B batch, n tokens, D hidden, L layers.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from longform.errors import ConfigurationError
from longform.functional.pooling import pooled
from longform.layers.attention import LinformerAttention
from longform.pretrained.tokenizers import special_tokens
from longform_text.data.batching import group_by_length
from longform_text.data.subject import corpus_key
from longform_text.data.text import Document
from longform_text.data.token_store import CorpusFiles
from longform_text.inference.loading import checked_limit, position_limit
from longform_text.training.distillation.crops import DataCollatorForCrops
from longform_text.training.distillation.settings import DistillationSettings
from longform_text.training.distillation.teacher import Teacher, layer_states

STREAMED = 1_000  # documents that tell one stream from another


class Agreement(NamedTuple):
    """``cosine``: mean over documents of the cosine of mean-pooled last states. ``layer_errors``: of each layer,
    the squared error of the hidden states over their squared size. ``documents``, ``tokens``: how many were measured.
    """

    cosine: float
    layer_errors: tuple[float, ...]
    documents: int
    tokens: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Agreement":
        """From its record."""
        return cls(row["cosine"], tuple(row["layer_errors"]), row["documents"], row["tokens"])

    def worse_than(self, before: "Agreement") -> list[str]:
        """Which of the two numbers of ``summary`` are worse than before, to the four digits that are shown."""
        now, then = self.summary(), before.summary()
        worse = {"cosine": then["cosine"] - now["cosine"], "layer_error": now["layer_error"] - then["layer_error"]}
        return [name for name, difference in worse.items() if difference >= 5e-5]

    def summary(self) -> dict[str, float]:
        """The cosine, and the mean over layers of their errors."""
        return {"cosine": self.cosine, "layer_error": sum(self.layer_errors) / len(self.layer_errors)}


def squared_parts(student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
    """Squared error and squared size of the teacher's states (B, n, D) over valid tokens, mask bool (B, n): (2,)."""
    error = student - teacher
    if mask is not None:
        error, teacher = (torch.where(mask[..., None], x, 0) for x in (error, teacher))
    norm = torch.linalg.vector_norm
    return torch.stack([norm(x, dtype=torch.float32).square() for x in (error, teacher)])


class Compared(NamedTuple):
    """Hidden states of student and teacher after each layer, L x (B, n, D); ``mask`` bool (B, n) or None."""

    student: tuple[Tensor, ...]
    teacher: tuple[Tensor, ...]
    mask: Tensor | None

    def layer_parts(self) -> Tensor:
        """``squared_parts`` of each layer: (L, 2)."""
        layers = zip(self.student, self.teacher, strict=True)
        return torch.stack([squared_parts(own, target, self.mask) for own, target in layers])

    def cosine(self) -> Tensor:
        """Cosine of the mean-pooled last states, float32 (B)."""
        own, target = (pooled(states[-1].float(), self.mask, kind="mean") for states in (self.student, self.teacher))
        return cosine_similarity(own, target, dim=-1)


class DistillationLoss:
    """Loss of a Longform on crops: the mean over layers of the squared error of its hidden states relative to the
    squared size of the teacher's, plus 1 - cosine of the mean-pooled last states.

    ``teacher``: an encoder with the student's layers, of which a frozen copy is kept on ``device`` in ``dtype``; it
    reads texts of more than ``limit`` tokens (default: all that it takes) in windows.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        tokenizer: Any,
        *,
        limit: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        encoder = encoder_of(teacher)
        self.collator = DataCollatorForCrops(tokenizer)
        self.teacher = Teacher(
            copy.deepcopy(encoder).requires_grad_(False).eval().to(device, dtype),
            special_tokens(tokenizer),
            limit=limit or position_limit(encoder.config),
            pad_id=self.collator.padding,
        )

    def compared(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Compared:
        """States of ``model`` (the student, perhaps wrapped) and of the teacher."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        lengths, mask = mask.sum(dim=1).tolist(), None if bool(mask.all()) else mask
        teacher = self.teacher.read(ids, mask, lengths)
        return Compared(layer_states(model, ids, mask), teacher, None if mask is None else mask.bool())

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The loss (scalar) of crops: ``input_ids``, ``attention_mask`` (B, n)."""
        found = self.compared(model, batch)
        error, size = found.layer_parts().unbind(dim=1)
        return (error / size.clamp_min(1e-12)).mean() + 1 - found.cosine().mean()

    @torch.no_grad()
    def agreement(self, model: nn.Module, crops: Sequence[list[int]], tokens_per_forward: int) -> Agreement:
        """Agreement of ``model`` with the teacher on crops."""
        errors, cosine = torch.zeros(0), 0.0
        device: Any = self.teacher.model.device
        for places in group_by_length([len(crop) for crop in crops], tokens_per_forward):
            some = self.collator([[crops[place] for place in places]])
            batch = {name: x.to(device) for name, x in some.items()}
            found = self.compared(model, batch)
            measured = found.layer_parts().double().cpu()
            errors = measured + errors if errors.numel() else measured
            cosine += float(found.cosine().sum())
        layers = tuple((errors[:, 0] / errors[:, 1]).tolist())
        return Agreement(cosine / len(crops), layers, len(crops), sum(map(len, crops)))


def _is_longform(model: PreTrainedModel) -> bool:
    return any(isinstance(module, LinformerAttention) for module in model.modules())


def encoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder below a head."""
    base = model.base_model
    assert isinstance(base, PreTrainedModel)
    return base


def check_pair(student: PreTrainedModel, teacher: PreTrainedModel, settings: DistillationSettings) -> None:
    """Raise ConfigurationError unless the student is a Longform, and the layers of the two correspond."""
    if not _is_longform(student):
        kind = student.config.model_type
        raise ConfigurationError(
            f'student and teacher are swapped: the student is the original here (of type "{kind}"), the teacher the '
            "Longform; give the Longform first, then the original"
            if _is_longform(teacher)
            else f'the student is of type "{kind}", without Longform\'s attention: convert it first (longform convert)'
        )
    for name in ("num_hidden_layers", "hidden_size", "vocab_size"):
        own, other = getattr(student.config, name), getattr(teacher.config, name)
        if own != other:
            raise ConfigurationError(
                f"{name} of the student is {own}, of the teacher {other}: "
                "they must be equal, as they are when the student was converted from this teacher"
            )
    checked_limit(position_limit(student.config), settings.length, name="the student", what="length")
    checked_limit(position_limit(teacher.config), settings.teacher_length, name="the teacher", what="teacher_length")


def texts_key(documents: Iterable[str | Document]) -> str:
    """A short name for the texts; of a stream, which may be endless, for the first of them."""
    whole = isinstance(documents, CorpusFiles | Sized)
    return corpus_key(documents, limit=None if whole else STREAMED)
