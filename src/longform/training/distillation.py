"""The original encoder teaches the converted one: layer by layer, on the embedding, and on masked tokens.

The loss of a batch is the mean over layers of the squared error of the student's hidden states relative to the squared
size of the teacher's (Linformer keeps the layers of its source, so they correspond one to one), plus 1 - cosine of the
mean-pooled last states, plus the divergence of the predictions at masked tokens where both models have that head.
"""

import contextlib
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longform.data.text import Document
from longform.training.agreement import Agreement
from longform.training.lesson import Lesson
from longform.training.records import RecordingCallback, show_measures
from longform.training.run_folder import RunFolder, current_process, temporary_folder
from longform.training.settings import DEFAULT_TOKENS, DistillationSettings
from longform.training.students import Student, load_encoder, open_student
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
    lesson = Lesson(opened, taught, documents, settings, heldout, process)
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


def _train(lesson: Lesson, run: RunFolder, *, progress: bool) -> None:
    """From where the run stands to its last step."""
    settings, records = lesson.settings, run.records

    def measured(step: int | None = None) -> dict[str, float]:
        found = lesson.agreement()
        records.add("agreement", trainer.state.global_step if step is None else step, **found._asdict())
        if progress and step is not None:  # the others are the Trainer's, which shows them
            show_measures("distilling", step, found.summary())
        return found.summary()

    if run.steps is None:
        began = time.perf_counter()
        records.begin()  # of a run that was killed before this had an end
        measured(0)
        run.fix_steps(_steps(lesson, time.perf_counter() - began, shown=progress), lesson.process)
    steps = run.steps
    assert steps is not None
    trainer = NumberedStepsTrainer(
        lesson.trained,
        training_arguments(
            run.folder, settings, learning_rate=lesson.learning_rate, steps=steps,
            evaluate_every=math.ceil(steps / (settings.evaluations + 1)) if settings.evaluations else None,
            save_every=(settings.save_every_steps or math.ceil(steps / 10)) if run.kept else None,
        ),
        source=lesson.source, part_loss=lesson.part_loss, measure=measured, dtype=lesson.dtype,
        callbacks=[RecordingCallback(records, "distilling", lesson.means, shown=progress)],
        make_optimizer=lesson.make_optimizer,
    )  # fmt: skip
    trainer.run(run.checkpoint)
    if (records.last("agreement") or {}).get("step") != steps:
        measured(steps)
    # A run that lacked only its end has read nothing now.
    tokens = max(
        lesson.source.tokens, *(row.get("tokens", 0) for row in records.rows if row["event"] != "agreement"), 0
    )
    records.add("end", steps, tokens=tokens)


def _steps(lesson: Lesson, seconds_to_measure: float, *, shown: bool) -> int:
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
                dtype=lesson.dtype, device=lesson.device, shown=shown, make_optimizer=lesson.make_optimizer,
            )
        )  # fmt: skip
    lesson.means()  # of the timed steps: not part of the run
    return min(budgets)
