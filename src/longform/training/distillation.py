"""The original encoder teaches the converted one: layer by layer, on the embedding, and on masked tokens.

The loss of a batch is the mean over layers of the squared error of the student's hidden states relative to the squared
size of the teacher's (Linformer keeps the layers of its source, so they correspond one to one), plus 1 - cosine of the
mean-pooled last states, plus the divergence of the predictions at masked tokens where both models have that head.
"""

import contextlib
import copy
import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longform.data.batching import group_by_length
from longform.data.text import Document
from longform.errors import ConfigurationError, DataError
from longform.training.agreement import (
    Agreement,
    bool_mask,
    divergence,
    measure,
    pooled_cosine,
    relative_error,
)
from longform.training.crops import Crops, CropSource, stack, text_of
from longform.training.records import RecordingCallback
from longform.training.run_folder import RunFolder, current_process, temporary_folder
from longform.training.settings import DEFAULT_TOKENS, DistillationSettings, as_dict, compute_dtype
from longform.training.students import (
    Student,
    checkpoint_activations,
    fingerprint,
    learning,
    load_encoder,
    open_student,
)
from longform.training.teacher import Encoded, EncoderTap, Teacher, reading_limit, special_tokens
from longform.training.trainer import (
    NumberedStepsTrainer,
    load_weights,
    steps_in_minutes,
    training_arguments,
    without_bars,
)


@dataclass(frozen=True)
class DistillationResult:
    """What came of it. ``student`` is the model that was given, trained in place (the loaded one for a folder).

    ``before``, ``after``: agreement with the teacher on held-out documents. ``steps``: optimiser steps, ``tokens``:
    of training text over all processes, ``seconds``: wall-clock time of this call. ``records``: every measurement.
    """

    student: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    before: Agreement
    after: Agreement
    steps: int
    tokens: int
    seconds: float
    records: list[dict[str, Any]] = field(repr=False)
    output: Path | None = None


def distill(
    student: "PreTrainedModel | str | Path | Any",
    teacher: PreTrainedModel | str | Path,
    tokenizer: PreTrainedTokenizerBase | None,
    documents: Iterable[str | Document],
    settings: DistillationSettings | None = None,
    *,
    heldout: Sequence[str | Document] | None = None,
    output: str | Path | None = None,
    resume: bool = True,
    progress: bool = True,
) -> DistillationResult:
    """Teach ``student`` to behave as ``teacher`` on ``documents``.

    ``student``: a loaded encoder, a ConversionResult, or a folder; ``teacher``: a loaded encoder, a folder or a hub
    name; ``tokenizer``: of both, or None with a folder or a ConversionResult. ``documents``: anything that can be
    iterated over again and again (a list is shuffled, a stream read as it comes). ``heldout``: documents on which
    agreement is measured; default: the first ``settings.heldout_documents``, which are then not trained on.
    ``output``: folder for checkpoints, records and the finished student. Called again with the same folder and
    settings, an interrupted run goes on from its newest checkpoint, to the same weights (``resume=False``: anew).

    Raises ConfigurationError (settings, layers that do not correspond, another run in the folder), DataError (no
    text), CheckpointError (a damaged checkpoint, a full disk).
    """
    began = time.perf_counter()
    settings = settings or DistillationSettings()
    process = current_process()
    opened = open_student(student, tokenizer)
    taught = load_encoder(teacher)
    lesson = _Lesson(opened, taught, documents, settings, heldout, process)
    with temporary_folder() if output is None else contextlib.nullcontext(Path(output)) as folder:
        run = RunFolder(folder, lesson.identity(), kept=output is not None, main=process.is_main_process)
        run.open(resume=resume, wait=process.wait_for_everyone)
        with lesson.prepared():
            if run.complete:
                load_weights(opened.model, folder)
            else:
                _train(lesson, run, progress=progress and process.is_main_process)
        if not run.complete:
            with without_bars():
                run.finish(opened.save, wait=process.wait_for_everyone)
    return _result(opened, run, began, output)


def _result(opened: Student, run: RunFolder, began: float, output: str | Path | None) -> DistillationResult:
    measured = run.records.of("agreement")
    end = run.records.last("end") or {}
    return DistillationResult(
        opened.model, opened.tokenizer, _agreement(measured[0]), _agreement(measured[-1]), steps=end["step"],
        tokens=end["tokens"], seconds=time.perf_counter() - began, records=run.records.rows,
        output=None if output is None else Path(output),
    )  # fmt: skip


def _agreement(row: dict[str, Any]) -> Agreement:
    return Agreement(row["cosine"], tuple(row["layer_errors"]), row["documents"], row["tokens"])


class _Lesson:
    """Student, teacher and text of one run, and what the student's loss is."""

    def __init__(
        self, opened: Student, taught: PreTrainedModel, documents: Iterable[str | Document],
        settings: DistillationSettings, heldout: Sequence[str | Document] | None, process: Any,
    ) -> None:  # fmt: skip
        self.opened, self.settings, self.process = opened, settings, process
        tokenizer = opened.tokenizer
        self.device, self.dtype = process.device, compute_dtype(settings.dtype, process.device)
        self.with_logits = settings.logits_weight > 0 and _predicts(opened.model) and _predicts(taught)
        self.trained = opened.model if self.with_logits else opened.model.base_model
        original = taught if self.with_logits else taught.base_model
        _check_pair(self.trained, original, settings)
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

    def identity(self) -> dict[str, Any]:
        """What must be the same for an interrupted run to go on."""
        digest = hashlib.sha256(repr(self.heldout).encode()).hexdigest()[:16]
        return {
            "kind": "distillation", "settings": as_dict(self.settings), "model": fingerprint(self.trained),
            "data": digest, "processes": self.process.num_processes,
        }  # fmt: skip

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
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
        """Word vectors are the teacher's already."""
        return [] if self.settings.train_word_embeddings else [self.trained.get_input_embeddings().weight]

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


def _train(lesson: _Lesson, run: RunFolder, *, progress: bool) -> None:
    """From where the run stands to its last step."""
    settings, records = lesson.settings, run.records

    def measured() -> dict[str, float]:
        found = lesson.agreement()
        records.add("agreement", trainer.state.global_step, **found._asdict())
        return {"cosine": found.cosine, "layer_error": sum(found.layer_errors) / len(found.layer_errors)}

    if run.steps is None:
        began = time.perf_counter()
        found = lesson.agreement()
        records.add("agreement", 0, **found._asdict())
        run.fix_steps(_steps(lesson, time.perf_counter() - began), lesson.process)
    steps = run.steps
    assert steps is not None
    trainer = NumberedStepsTrainer(
        lesson.trained,
        training_arguments(
            run.folder, settings, steps=steps,
            evaluate_every=math.ceil(steps / (settings.evaluations + 1)) if settings.evaluations else None,
            save_every=(settings.save_every_steps or math.ceil(steps / 10)) if run.kept else None,
        ),
        source=lesson.source, part_loss=lesson.part_loss, measure=measured, dtype=lesson.dtype,
        callbacks=[RecordingCallback(records, "distilling", lesson.means, shown=progress)],
    )  # fmt: skip
    trainer.run(run.checkpoint)
    if (records.last("agreement") or {}).get("step") != steps:
        records.add("agreement", steps, **lesson.agreement()._asdict())
    records.add("end", steps, tokens=lesson.source.tokens)


def _steps(lesson: _Lesson, seconds_to_measure: float) -> int:
    """Optimiser steps of the smallest budget."""
    settings = lesson.settings
    budgets = []
    tokens = settings.max_tokens
    if settings.max_steps is None and settings.max_minutes is None and tokens is None:
        tokens = DEFAULT_TOKENS
    if settings.max_steps is not None:
        budgets.append(settings.max_steps)
    if tokens is not None:
        budgets.append(math.ceil(tokens / (lesson.source.step_tokens * lesson.process.num_processes)))
    if settings.max_minutes is not None:
        overhead = seconds_to_measure * (settings.evaluations + 2)
        budgets.append(
            steps_in_minutes(
                lesson.trained, lesson.source, lesson.part_loss, minutes=settings.max_minutes, overhead=overhead,
                dtype=lesson.dtype, device=lesson.device,
            )
        )  # fmt: skip
    lesson.means()  # of the timed steps: not part of the run
    return min(budgets)


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
