"""A distillation: student, teacher and text, the loss, and their agreement on documents that are kept apart.

Axes: B batch, n tokens, D hidden, m masked tokens, V vocabulary.
"""

import contextlib
import copy
from collections.abc import Generator, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, kl_div, log_softmax
from torch.optim import Optimizer
from transformers import PreTrainedModel

from longform.data.batching import group_by_length
from longform.data.special_tokens import special_tokens
from longform.data.text import Document
from longform.data.token_store import CorpusFiles
from longform.distributed.pooling import pooled_texts
from longform.distributed.token_losses import over_parts, own_places, own_tokens
from longform.errors import ConfigurationError, DataError
from longform.inference.loading import position_limit
from longform.layers.attention import LinformerAttention
from longform.runs.digest import content_key
from longform.runs.page import Heading
from longform.runs.subject import corpus_key, model_key
from longform.training.distillation.crops import Crops, CropSource, stack, text_of
from longform.training.distillation.teacher import Encoded, EncoderTap, Teacher
from longform.training.engine.measured_job import MeasuredJob
from longform.training.engine.optimizers import muon_adamw
from longform.training.engine.run_folder import RunFolder
from longform.training.engine.settings import BUDGETS, DEFAULT_TOKENS, DistillationSettings, fitted
from longform.training.engine.students import Student
from longform.training.engine.trained_card import scores_table, short_name, write_card
from longform.training.engine.trainer import check_start

STREAMED = 1_000  # documents that tell one stream from another
WINDOWED_RATE, MEMORY_RATE = 1e-4, 5e-4  # highest learning rates for students with and without a window


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


class Said(NamedTuple):
    """Outputs of student and teacher for the tokens that are here, whose bool ``mask`` is (B, n), or None."""

    student: Encoded
    teacher: Encoded
    mask: Tensor | None


def squared_parts(student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
    """Squared error and squared size of the teacher's states (B, n, D) over valid tokens, mask bool (B, n): (2,)."""
    error = student - teacher
    if mask is not None:
        error, teacher = (torch.where(mask[..., None], x, 0) for x in (error, teacher))
    norm = torch.linalg.vector_norm
    return torch.stack([norm(x, dtype=torch.float32).square() for x in (error, teacher)])


class DistillationJob(MeasuredJob):
    """Student, teacher and text of one run, and what the student's loss is."""

    kind, event, doing = "distillation", "agreement", "distilling"
    metric = "cosine"

    def __init__(
        self,
        opened: Student,
        taught: PreTrainedModel,
        documents: Iterable[str | Document],
        settings: DistillationSettings,
        heldout: Iterable[str | Document] | None,
        process: Any,
    ) -> None:
        settings = fitted(settings, position_limit(opened.model.config))
        super().__init__(settings, process)
        self.opened, tokenizer = opened, opened.tokenizer
        self.original_name = str(taught.config._name_or_path or "")
        self.with_logits = settings.logits_weight > 0 and _predicts(opened.model) and _predicts(taught)
        both = opened.model, taught
        self.trained, original = both if self.with_logits else map(_encoder, both)
        _check_pair(self.trained, original, settings)
        check_start(original, "the teacher")
        self.taught, self.texts = model_key(original), _texts_key(documents)
        self.special = special_tokens(tokenizer)
        self.teacher = Teacher(
            copy.deepcopy(original).requires_grad_(False).eval().to(self.device, self.dtype),
            self.special,
            limit=settings.teacher_length or position_limit(original.config),
            pad_id=tokenizer.pad_token_id or 0,
            with_logits=self.with_logits,
        )
        self.source = CropSource(
            documents,
            tokenizer,
            self.special,
            settings,
            heldout=0 if heldout is not None else settings.heldout_documents,
            rank=process.reader,
            processes=process.readers,
            mask_id=tokenizer.mask_token_id if self.with_logits else None,
            few_parts=self.device.type == "cuda",  # it takes longer to begin a short part than to read some padding
        )
        if heldout is None:
            self.heldout = self.source.heldout_crops()
        else:
            self.heldout = self.source.whole_crops(list(map(text_of, heldout)))
        if not self.heldout:
            raise DataError("no text to measure on: the held-out documents are empty")
        self.sums: dict[str, Tensor] = {}
        self.summed = 0.0
        opened.model.float().to(process.weights_device)

    @property
    def learning_rate(self) -> float:
        """The chosen one, or what suits the student."""
        windowed = getattr(self.trained.config, "attention_window", None) is not None
        return self.settings.learning_rate or (WINDOWED_RATE if windowed else MEMORY_RATE)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """The chosen optimizer of ``model``'s trained parameters."""
        if self.settings.optimizer == "muon":
            return muon_adamw(model, lr=self.learning_rate, weight_decay=self.settings.weight_decay)
        return super().make_optimizer(model)

    def subject(self) -> dict[str, Any]:
        """Student, teacher, and the texts to measure on and to learn from."""
        data = content_key(self.heldout)
        return {"model": model_key(self.trained), "teacher": self.taught, "data": data, "texts": self.texts}

    @contextlib.contextmanager
    def prepared(self) -> Generator[None]:
        """See MeasuredJob."""
        with self.learning():
            self.tap = EncoderTap(self.trained, with_logits=self.with_logits)
            try:
                yield
            finally:
                self.tap.remove()

    def _ask(self, model: nn.Module, crops: Crops) -> Said:
        """Outputs of ``model`` (the student, perhaps wrapped) and teacher; of texts shared out, for the part here."""
        ids = crops.input_ids.to(self.device)
        mask = None if crops.attention_mask is None else crops.attention_mask.to(self.device)
        chosen = None
        if self.with_logits:
            chosen = (torch.zeros(1, dtype=torch.long) if crops.masked is None else crops.masked).to(self.device)
        target = self.teacher.read(ids, mask, crops.lengths, chosen)
        self.tap.positions = chosen
        own = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        logits = target.logits
        if logits is not None and chosen is not None:
            logits = logits[own_places(self.trained, chosen).which]
        states = tuple(own_tokens(self.trained, layer) for layer in target.states)
        own_mask = None if crops.mask is None else own_tokens(self.trained, crops.mask.to(self.device))
        return Said(own, Encoded(states, logits), own_mask)

    def _layer_parts(self, said: Said) -> Tensor:
        """``squared_parts`` of each layer, of whole texts: (L, 2)."""
        layers = zip(said.student.states, said.teacher.states, strict=True)
        return over_parts(self.trained, torch.stack([squared_parts(*pair, said.mask) for pair in layers]))

    def _cosine(self, said: Said) -> Tensor:
        """Cosine of the mean-pooled last states of whole texts, float32 (B)."""
        last = (encoded.states[-1].float() for encoded in (said.student, said.teacher))
        return cosine_similarity(*(pooled_texts(self.trained, x, said.mask, kind="mean") for x in last), dim=-1)

    def _divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """KL(teacher || student) in nats, mean over the tokens of whole texts, from logits (m, V)."""
        own, target = (log_softmax(x.float(), -1) for x in (student, teacher))
        own_count = torch.tensor(float(len(own)), device=own.device)
        total = kl_div(own, target, reduction="sum", log_target=True)
        total, count = over_parts(self.trained, torch.stack([total, own_count])).unbind()
        return total / count

    def steps(self, start: int = 0) -> Iterator[list[Crops]]:
        """See Job."""
        return self.source.steps(start)

    def part_loss(self, model: nn.Module, crops: Crops, share: float) -> Tensor:
        """The weighted loss of one part of a step, which holds ``share`` of its tokens."""
        said = self._ask(model, crops)
        chosen, losses = self.settings, {}
        if chosen.hidden_weight:
            error, size = self._layer_parts(said).unbind(dim=1)
            losses["hidden"] = (error / size.clamp_min(1e-12)).mean()
        if chosen.pooled_weight:
            losses["pooled"] = 1 - self._cosine(said).mean()
        if said.student.logits is not None and said.teacher.logits is not None:
            losses["logits"] = self._divergence(said.student.logits, said.teacher.logits)
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0) + loss.detach() * share
        self.summed += share
        return share * sum(getattr(chosen, f"{name}_weight") * loss for name, loss in losses.items())

    def means(self) -> dict[str, float]:
        """The parts of the loss since this was last asked, and the tokens trained on so far."""
        means = {name: float(value) / max(self.summed, 1e-9) for name, value in self.sums.items()}
        self.sums, self.summed = {}, 0.0
        return {**means, "tokens": self.source.tokens}

    def end(self, run: RunFolder, steps: int) -> dict[str, Any]:
        """Tokens that were read, and what is worse than before; a run that lacked only its end has read nothing now."""
        said = (row.get("tokens", 0) for row in run.records.rows if row["event"] != self.event)
        found = [Agreement.of(row) for row in run.records.of(self.event)]
        return {"tokens": max(self.source.tokens, *said, 0), "worse": found[-1].worse_than(found[0])}

    def save(self, run: RunFolder, folder: Path) -> None:
        """The model and its card."""
        super().save(run, folder)
        end, found = run.records.last("end") or {}, [Agreement.of(row) for row in run.records.of("agreement")]
        taught = f"`{short_name(self.original_name)}`" if self.original_name else "its original"
        agreement = {"before": found[0].summary(), f"after {end['step']:,} steps": found[-1].summary()}
        blocks = [
            f"A Longform that {taught} has taught on {end['tokens']:,} tokens of text without labels (longform "
            "distill): long texts get nearly the states that the original has for their windows.",
            Heading("Agreement with the original"),
            f"On {found[-1].documents:,} documents ({found[-1].tokens:,} tokens) that were held out: cosine of "
            "mean-pooled states, and squared error of hidden states over their squared size, mean over layers.",
            scores_table(["cosine", "error"], agreement),
        ]
        write_card(folder, self.opened, "healed", blocks)

    def budgets(self) -> tuple[float, ...]:
        """Steps for the tokens that were chosen, or for a number of them where nothing was."""
        chosen = self.settings
        tokens = chosen.max_tokens
        if all(getattr(chosen, name) is None for name in BUDGETS):
            tokens = DEFAULT_TOKENS
        return () if tokens is None else (tokens / (self.source.step_tokens * self.process.readers),)

    @torch.no_grad()
    def measure(self) -> Agreement:
        """Agreement on the held-out documents, in evaluation mode."""
        self.trained.eval()
        pad_id = self.opened.tokenizer.pad_token_id or 0
        groups = group_by_length([len(crop) for crop in self.heldout], self.settings.tokens_per_forward)
        errors, cosine, tokens = 0.0, 0.0, 0
        for places in groups:
            crops = stack([self.heldout[place] for place in places], pad_id)
            with self.autocast():
                said = self._ask(self.trained, crops)
                errors = errors + self._layer_parts(said).double().cpu()
                cosine += float(self._cosine(said).sum())
            tokens += crops.tokens
        assert isinstance(errors, Tensor), "no batches"
        return Agreement(
            cosine / len(self.heldout), tuple((errors[:, 0] / errors[:, 1]).tolist()), len(self.heldout), tokens
        )


def _is_longform(model: PreTrainedModel) -> bool:
    return any(isinstance(module, LinformerAttention) for module in model.modules())


def _encoder(model: PreTrainedModel) -> PreTrainedModel:
    base = model.base_model
    assert isinstance(base, PreTrainedModel)
    return base


def _predicts(model: PreTrainedModel) -> bool:
    return model.get_output_embeddings() is not None


def _check_pair(student: PreTrainedModel, teacher: PreTrainedModel, settings: DistillationSettings) -> None:
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
    limit = position_limit(student.config)
    assert settings.length is not None
    if settings.length > limit:
        raise ConfigurationError(
            f"length={settings.length} is more than the {limit} tokens that the student takes: "
            f"lower it, or convert with max_length={settings.length}"
        )
    if settings.teacher_length is not None and settings.teacher_length > position_limit(teacher.config):
        raise ConfigurationError(
            f"teacher_length={settings.teacher_length} is more than the {position_limit(teacher.config)} tokens "
            "that the teacher takes"
        )


def _texts_key(documents: Iterable[str | Document]) -> str:
    """A short name for the texts; of a stream, which may be endless, for the first of them."""
    whole = isinstance(documents, CorpusFiles | Sized)
    return corpus_key(documents, limit=None if whole else STREAMED)
