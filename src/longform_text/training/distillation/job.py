"""A distillation: student, teacher and text, the loss, and their agreement on documents that are kept apart.

Axes: B batch, n tokens, D hidden, L layers.
"""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.optim import AdamW, Muon, Optimizer
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from longform.errors import ConfigurationError, DataError
from longform.files import content_key
from longform.functional.conditions import native_bfloat16
from longform.functional.pooling import pooled
from longform.layers.attention import LinformerAttention
from longform.layers.parameter_groups import multipliers, parameter_groups
from longform.pretrained.checkpoint_files import model_key
from longform.pretrained.model_card import Heading
from longform.pretrained.tokenizers import special_tokens
from longform_text.data.subject import corpus_key
from longform_text.data.text import Document
from longform_text.data.token_store import CorpusFiles
from longform_text.inference.loading import position_limit
from longform_text.training.distillation.crops import Crops, CropSource, at_most_a_fifth, stacks, text_of
from longform_text.training.distillation.teacher import Teacher, layer_states
from longform_text.training.engine.job import Job
from longform_text.training.engine.run_folder import RunFolder
from longform_text.training.engine.settings import DEFAULT_TOKENS, DistillationSettings, fitted
from longform_text.training.engine.students import Student
from longform_text.training.engine.trained_card import scores_table, short_name, write_card
from longform_text.training.engine.trainer import check_start

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


class DistillationJob(Job):
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
        self.trained, original = _encoder(opened.model), _encoder(taught)
        _check_pair(self.trained, original, settings)
        check_start(original, "the teacher")
        self.taught, self.texts = model_key(original), _texts_key(documents)
        self.special = special_tokens(tokenizer)
        self.teacher = Teacher(
            copy.deepcopy(original).requires_grad_(False).eval().to(self.device, self.dtype),
            self.special,
            limit=settings.teacher_length or position_limit(original.config),
            pad_id=tokenizer.pad_token_id or 0,
        )
        self.source = CropSource(
            documents,
            tokenizer,
            self.special,
            settings,
            heldout=0 if heldout is not None else at_most_a_fifth(settings.heldout_documents, documents),
            rank=process.process_index,
            processes=process.num_processes,
        )
        if heldout is None:
            self.heldout = self.source.heldout_crops()
        else:
            self.heldout = self.source.whole_crops(list(map(text_of, heldout)))
        if not self.heldout:
            raise DataError("no text to measure on: the held-out documents are empty")
        opened.model.float().to(self.device)

    @property
    def learning_rate(self) -> float:
        """The chosen one, or what suits the student."""
        windowed = getattr(self.trained.config, "attention_window", None) is not None
        return self.settings.learning_rate or (WINDOWED_RATE if windowed else MEMORY_RATE)

    def make_optimizers(self, model: nn.Module) -> list[Optimizer]:
        """See Job; by default Muon is beside it."""
        if self.settings.optimizer == "muon":
            return muon_adamw(model, lr=self.learning_rate, weight_decay=self.settings.weight_decay)
        return super().make_optimizers(model)

    def subject(self) -> dict[str, Any]:
        """Student, teacher, and the texts to measure on and to learn from."""
        data = content_key(self.heldout)
        return {"model": model_key(self.trained), "teacher": self.taught, "data": data, "texts": self.texts}

    def prepared(self) -> AbstractContextManager[None]:
        """See Job."""
        return self.learning()

    def _ask(self, model: nn.Module, crops: Crops) -> Compared:
        """States of ``model`` (the student, perhaps wrapped) and of the teacher."""
        ids = crops.input_ids.to(self.device)
        mask = None if crops.attention_mask is None else crops.attention_mask.to(self.device)
        teacher = self.teacher.read(ids, mask, crops.lengths)
        return Compared(layer_states(model, ids, mask), teacher, None if mask is None else mask.bool())

    def steps(self, start: int = 0) -> Iterator[list[Crops]]:
        """See Job."""
        return self.source.steps(start)

    def part_loss(self, model: nn.Module, crops: Crops, share: float) -> Tensor:
        """The loss of one part of a step, which holds ``share`` of its tokens."""
        found = self._ask(model, crops)
        error, size = found.layer_parts().unbind(dim=1)
        hidden, cosine = (error / size.clamp_min(1e-12)).mean(), 1 - found.cosine().mean()
        self.note(share, hidden=hidden.detach(), pooled=cosine.detach())
        return share * (hidden + cosine)

    def means(self) -> dict[str, float]:
        """See Job; and the tokens trained on so far."""
        return {**super().means(), "tokens": self.source.tokens}

    def end(self, run: RunFolder, steps: int) -> dict[str, Any]:
        """Tokens that were read, and what is worse than before; a run that lacked only its end has read nothing now."""
        said = (row.get("tokens", 0) for row in run.records.rows if row["event"] != self.event)
        found = [Agreement.of(row) for row in run.records.of(self.event)]
        return {"tokens": max(self.source.tokens, *said, 0), "worse": found[-1].worse_than(found[0])}

    def save(self, run: RunFolder, folder: Path) -> None:
        """The model and its card."""
        super().save(run, folder)
        end, found = run.end, [Agreement.of(row) for row in run.records.of("agreement")]
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

    def budgets(self) -> Sequence[float]:
        """Steps for the tokens that were chosen, or for a number of them where nothing was."""
        tokens = self.settings.max_tokens
        if tokens is None and self.is_unbounded:
            tokens = DEFAULT_TOKENS
        return [] if tokens is None else [tokens / (self.source.step_tokens * self.process.num_processes)]

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Agreement on the held-out documents."""
        pad_id = self.opened.tokenizer.pad_token_id or 0
        errors, cosine, tokens = 0.0, 0.0, 0
        for crops in stacks(self.heldout, pad_id, self.settings.tokens_per_forward):
            with self.autocast():
                found = self._ask(self.trained, crops)
                errors = errors + found.layer_parts().double().cpu()
                cosine += float(found.cosine().sum())
            tokens += crops.tokens
        assert isinstance(errors, Tensor), "no batches"
        layers = tuple((errors[:, 0] / errors[:, 1]).tolist())
        return Agreement(cosine / len(self.heldout), layers, len(self.heldout), tokens)._asdict()

    def summary(self, measured: dict[str, Any]) -> dict[str, float]:
        """See Job."""
        return Agreement.of(measured).summary()


class _Float32(TorchFunctionMode):
    """Float32 where bfloat16 is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.bfloat16:
            return args[0].to(torch.float32, copy=True)
        return func(*args, **(kwargs or {}))


class Float32Muon(Muon):
    """Muon for CPUs that do not multiply bfloat16, in which torch's takes 25 times as long there."""

    def step(self, closure: Any = None) -> Any:
        """A step of Muon."""
        with _Float32():
            return super().step(closure)


# Tables and last layers: one row for each word, distance or label.
NOT_MUON = ("embeddings", "relative_attention_bias", "decoder", "out_proj")


def muon_adamw(model: nn.Module, *, lr: float, weight_decay: float) -> list[Optimizer]:
    """Muon for the trained matrices inside the layers, AdamW for vectors, tables, kernels and last layers.

    Muon (Jordan et al. 2024) takes the direction of a matrix's momentum and makes all its singular values one; "Muon is
    scalable for LLM training" (Liu et al. 2025) scales the result so that AdamW's rates and weight decay fit.
    ``weight_decay``: of the former. What has a rate of its own (longform.parameter_groups) keeps it, and AdamW.
    """
    plain = {p for p, multiplier in multipliers(model).items() if multiplier is None and p.ndim == 2}
    by_muon = plain - {p for name, p in model.named_parameters() if any(part in name for part in NOT_MUON)}
    groups = parameter_groups(model, lr=lr, weight_decay=0.0)
    matrices = [group | {"weight_decay": weight_decay} for group in _groups_of(groups, by_muon)]
    others = _groups_of(groups, set(model.parameters()) - by_muon)
    found: list[Optimizer] = []
    if matrices:
        kind = Muon if native_bfloat16(next(iter(by_muon)).device) else Float32Muon
        found.append(kind(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"))
    if others:
        found.append(AdamW(others, lr=lr, fused=True))
    return found


def _groups_of(groups: Iterable[dict[str, Any]], parameters: Collection[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups with those of their parameters that are among ``parameters``; none of them is empty."""
    chosen = [group | {"params": [p for p in group["params"] if p in parameters]} for group in groups]
    return [group for group in chosen if group["params"]]


def _is_longform(model: PreTrainedModel) -> bool:
    return any(isinstance(module, LinformerAttention) for module in model.modules())


def _encoder(model: PreTrainedModel) -> PreTrainedModel:
    base = model.base_model
    assert isinstance(base, PreTrainedModel)
    return base


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
