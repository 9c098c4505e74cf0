"""Student, teacher and text of one distillation, and what the student's loss is."""

import contextlib
import copy
import hashlib
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from longform.data.batching import group_by_length
from longform.data.text import Document
from longform.data.token_store import CorpusFiles, corpus_key
from longform.errors import ConfigurationError, DataError
from longform.training.agreement import Agreement, bool_mask, divergence, measure, pooled_cosine, relative_error
from longform.training.crops import Crops, CropSource, stack, text_of
from longform.training.optimizers import muon_adamw
from longform.training.settings import DistillationSettings, as_dict, compute_dtype
from longform.training.students import Student, checkpoint_activations, fingerprint, learning
from longform.training.teacher import Encoded, EncoderTap, Teacher, reading_limit, special_tokens

STREAMED = 1_000  # documents that tell one stream from another
WINDOWED_RATE, MEMORY_RATE = 1e-4, 5e-4  # highest learning rates for students with and without a window


class Lesson:
    """Student, teacher and text of one run, and what the student's loss is."""

    def __init__(
        self, opened: Student, taught: PreTrainedModel, documents: Iterable[str | Document],
        settings: DistillationSettings, heldout: Sequence[str | Document] | None, process: Any,
    ) -> None:  # fmt: skip
        self.opened, self.settings, self.process = opened, settings, process
        tokenizer = opened.tokenizer
        self.device, self.dtype = process.device, compute_dtype(settings.dtype, process.device)
        self.with_logits = settings.logits_weight > 0 and _predicts(opened.model) and _predicts(taught)
        self.trained = opened.model if self.with_logits else _encoder(opened.model)
        original = taught if self.with_logits else _encoder(taught)
        _check_pair(self.trained, original, settings)
        self.taught, self.texts = fingerprint(original), _texts_key(documents)
        self.special = special_tokens(tokenizer)
        self.teacher = Teacher(
            copy.deepcopy(original).requires_grad_(False).eval().to(self.device, self.dtype), self.special,
            limit=settings.teacher_length or reading_limit(original.config), stride=settings.teacher_stride,
            pad_id=tokenizer.pad_token_id or 0, with_logits=self.with_logits,
        )  # fmt: skip
        self.source = CropSource(
            documents, tokenizer, self.special, settings, heldout=0 if heldout is not None else
            settings.heldout_documents, rank=process.process_index, processes=process.num_processes,
            mask_id=tokenizer.mask_token_id if self.with_logits else None,
        )  # fmt: skip
        self.heldout = (
            self.source.heldout_crops() if heldout is None else self.source.whole_crops([text_of(d) for d in heldout])
        )
        if not self.heldout:
            raise DataError("no text to measure on: the held-out documents are empty")
        self.sums: dict[str, Tensor] = {}
        self.summed = 0.0

    @property
    def learning_rate(self) -> float:
        """The chosen one, or what suits the student."""
        windowed = getattr(self.trained.config, "attention_window", None) is not None
        return self.settings.learning_rate or (WINDOWED_RATE if windowed else MEMORY_RATE)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """The chosen optimizer of ``model``'s trained parameters."""
        lr, decay = self.learning_rate, self.settings.weight_decay
        if self.settings.optimizer == "muon":
            return muon_adamw(model, lr=lr, weight_decay=decay)
        trained = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=lr, fused=True)

    def identity(self) -> dict[str, Any]:
        """What must be the same for an interrupted run to go on."""
        digest = hashlib.sha256(repr(self.heldout).encode()).hexdigest()[:16]
        return {
            "kind": "distillation", "settings": as_dict(self.settings), "model": fingerprint(self.trained),
            "teacher": self.taught, "data": digest, "texts": self.texts, "processes": self.process.num_processes,
        }  # fmt: skip

    @contextlib.contextmanager
    def prepared(self) -> Generator[None]:
        """The student ready to learn, and given back as it was but for its weights."""
        model = self.opened.model.float().to(self.device)
        with learning(model, dropout=self.settings.dropout, frozen=self._untaught()):
            if self.settings.gradient_checkpointing:
                checkpoint_activations(model, on=True)
            self.tap = EncoderTap(self.trained, with_logits=self.with_logits)
            try:
                yield
            finally:
                self.tap.remove()
                if self.settings.gradient_checkpointing:
                    checkpoint_activations(model, on=False)
                model.eval()

    def _untaught(self) -> list[nn.Parameter]:
        """What does not move: word vectors, which are the teacher's already, and a pooler, which no loss sees."""
        words = self.trained.get_input_embeddings().weight
        assert isinstance(words, nn.Parameter)
        pooler = [p for name, p in self.trained.named_parameters() if "pooler" in name.split(".")]
        return pooler if self.settings.train_word_embeddings else [words, *pooler]

    def _ask(self, model: nn.Module, crops: Crops) -> tuple[Encoded, Encoded]:
        """What ``model`` (the student, perhaps wrapped) and the teacher say."""
        ids = crops.input_ids.to(self.device)
        mask = None if crops.attention_mask is None else crops.attention_mask.to(self.device)
        chosen = crops.masked if self.with_logits else None
        if self.with_logits:
            chosen = torch.zeros(1, dtype=torch.long) if chosen is None else chosen
            chosen = chosen.to(self.device)
        target = self.teacher.read(ids, mask, crops.lengths, chosen)
        self.tap.positions = chosen
        return model(input_ids=ids, attention_mask=mask, output_hidden_states=True), target

    def part_loss(self, model: nn.Module, crops: Crops, share: float) -> Tensor:
        """The weighted loss of one part of a step, which holds ``share`` of its tokens."""
        own, target = self._ask(model, crops)
        mask = bool_mask(crops)
        mask = None if mask is None else mask.to(self.device)
        chosen, losses = self.settings, {}
        if chosen.hidden_weight:
            losses["hidden"] = relative_error(own.states, target.states, mask)
        if chosen.pooled_weight:
            losses["pooled"] = 1 - pooled_cosine(own.states[-1], target.states[-1], mask).mean()
        if own.logits is not None and target.logits is not None:
            losses["logits"] = divergence(own.logits, target.logits)
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0) + loss.detach() * share
        self.summed += share
        return share * sum(getattr(chosen, f"{name}_weight") * loss for name, loss in losses.items())

    def means(self) -> dict[str, float]:
        """The parts of the loss since this was last asked, and the tokens trained on so far."""
        means = {name: float(value) / max(self.summed, 1e-9) for name, value in self.sums.items()}
        self.sums, self.summed = {}, 0.0
        return {**means, "tokens": self.source.tokens}

    def agreement(self) -> Agreement:
        """Agreement on the held-out documents, in evaluation mode."""
        self.trained.eval()
        pad_id = self.opened.tokenizer.pad_token_id or 0
        groups = group_by_length([len(crop) for crop in self.heldout], self.settings.tokens_per_forward)
        batches = (stack([self.heldout[place] for place in places], pad_id) for places in groups)
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            return measure(lambda crops: self._ask(self.trained, crops), batches)


def _encoder(model: PreTrainedModel) -> PreTrainedModel:
    base = model.base_model
    assert isinstance(base, PreTrainedModel)
    return base


def _predicts(model: PreTrainedModel) -> bool:
    return model.get_output_embeddings() is not None


def _check_pair(student: PreTrainedModel, teacher: PreTrainedModel, settings: DistillationSettings) -> None:
    """Raise ConfigurationError unless the layers of the two correspond."""
    for name in ("num_hidden_layers", "hidden_size", "vocab_size"):
        own, other = getattr(student.config, name), getattr(teacher.config, name)
        if own != other:
            raise ConfigurationError(
                f"{name} of the student is {own}, of the teacher {other}: "
                "they must be equal, as they are when the student was converted from this teacher"
            )
    limit = reading_limit(student.config)
    if settings.length > limit:
        raise ConfigurationError(
            f"length={settings.length} is more than the {limit} tokens that the student takes: "
            f"lower it, or convert with max_length={settings.length}"
        )
    if settings.teacher_length is not None and settings.teacher_length > reading_limit(teacher.config):
        raise ConfigurationError(
            f"teacher_length={settings.teacher_length} is more than the {reading_limit(teacher.config)} tokens "
            "that the teacher takes"
        )


def _texts_key(documents: Iterable[str | Document]) -> str:
    """A short name for the texts; of a stream, which may be endless, for the first of them."""
    whole = isinstance(documents, CorpusFiles | Sequence)
    return corpus_key(documents, limit=None if whole else STREAMED)
