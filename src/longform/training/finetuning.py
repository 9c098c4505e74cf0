"""Fine-tuning an encoder, Longform or any other of Hugging Face's, on labelled texts."""

import contextlib
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from longform.data.text import atomic_write
from longform.errors import ConfigurationError
from longform.inference import classifiers
from longform.training.finetuning_job import FinetuningJob
from longform.training.labels import (
    MULTI,
    REGRESSION,
    SINGLE,
    Examples,
    LabelScheme,
    check_examples,
    learn_scheme,
    read_examples,
    split,
)
from longform.training.plots import confusion_matrix, learning_curve
from longform.training.records import RecordingCallback
from longform.training.run_folder import RunFolder, current_process, temporary_folder
from longform.training.settings import FinetuningSettings
from longform.training.students import checkpoint_activations, with_labels
from longform.training.trainer import (
    NumberedStepsTrainer,
    load_weights,
    steps_in_minutes,
    training_arguments,
    without_bars,
)

PROBLEMS = {
    SINGLE: classifiers.SINGLE_LABEL,
    MULTI: classifiers.MULTI_LABEL,
    REGRESSION: classifiers.REGRESSION,
}


@dataclass(frozen=True)
class FinetuningResult:
    """What came of it: the best model, its ``metrics`` on the validation part, and how it got there.

    ``labels``: names in the order of the logits. ``truncated``: texts of the training part that were cut.
    ``seconds``: wall-clock time of this call. ``records``: every measurement.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: str
    labels: list[str]
    metrics: dict[str, Any]
    steps: int
    truncated: int
    seconds: float
    records: list[dict[str, Any]] = field(repr=False)
    output: Path | None = None


def finetune(
    model: "PreTrainedModel | str | Path | Any",
    tokenizer: PreTrainedTokenizerBase | None,
    train: Examples | str | Path,
    settings: FinetuningSettings | None = None,
    *,
    validation: Examples | str | Path | None = None,
    text_field: str = "text",
    label_field: str = "label",
    pair_field: str | None = None,
    output: str | Path | None = None,
    resume: bool = True,
    progress: bool = True,
) -> FinetuningResult:
    """Train ``model`` on labelled texts, measure it on a validation part, keep the best.

    ``model``: a loaded encoder, a ConversionResult, a folder or a hub name; it gets a classification head for the
    labels unless it has one that fits. A model in memory is copied, not changed. ``tokenizer``: None with a folder,
    hub name or ConversionResult. ``train``, ``validation``: Examples, or a .parquet, .jsonl or .csv file; without a
    validation part ``settings.validation_fraction`` of the texts is held out. ``output``: folder for checkpoints,
    records, pictures and the finished model; called again with it, an interrupted run goes on from its newest
    checkpoint, to the same weights (``resume=False``: anew).

    Raises DataError (labels), ConfigurationError (settings, another run in the folder), CheckpointError.
    """
    began = time.perf_counter()
    settings = settings or FinetuningSettings()
    fields: Any = {"text_field": text_field, "label_field": label_field, "pair_field": pair_field}
    process = current_process()
    labelled = train if isinstance(train, Examples) else read_examples(train, **fields)
    if validation is not None and not isinstance(validation, Examples):
        validation = read_examples(validation, **fields)
    scheme, taught, held = _split(labelled, validation, settings)
    set_seed(settings.seed)
    opened = with_labels(
        model, len(scheme.names), tokenizer, problem_type=PROBLEMS[scheme.task],
        pooling=settings.classifier_pooling,
        id2label=dict(enumerate(scheme.names)), label2id={name: i for i, name in enumerate(scheme.names)},
    )  # fmt: skip
    job = FinetuningJob(opened, scheme, taught, held, settings, process, progress=progress)
    with temporary_folder() if output is None else contextlib.nullcontext(Path(output)) as folder:
        run = RunFolder(folder, job.identity(), kept=output is not None, main=process.is_main_process)
        run.open(resume=resume, wait=process.wait_for_everyone)
        if run.complete:
            load_weights(opened.model, folder)
        else:
            _train(job, run, progress=progress and process.is_main_process)
            with without_bars():
                run.finish(lambda place: _save(job, run, place), wait=process.wait_for_everyone)
    end = run.records.last("end") or {}
    metrics = {name: value for name, value in end.items() if name not in ("event", "step")}
    return FinetuningResult(
        opened.model, opened.tokenizer, scheme.task, scheme.names, metrics, steps=end["step"],
        truncated=job.truncated, seconds=time.perf_counter() - began, records=run.records.rows,
        output=None if output is None else Path(output),
    )  # fmt: skip


def _split(
    train: Examples, validation: Examples | None, settings: FinetuningSettings
) -> tuple[LabelScheme, Examples, Examples]:
    check_examples(train, where="the training part")
    scheme = learn_scheme(train.labels, settings.task)
    if validation is None:
        train, validation = split(train, scheme, fraction=settings.validation_fraction, seed=settings.seed)
    else:
        check_examples(validation, where="the validation part")
    if (train.pairs is None) != (validation.pairs is None):
        raise ConfigurationError("training and validation part: either both have second texts, or none")
    return scheme, train, validation


def _save(job: FinetuningJob, run: RunFolder, folder: Path) -> None:
    """Everything that the finished folder holds."""
    job.opened.save(folder)
    end = run.records.last("end") or {}
    with atomic_write(folder / "metrics.json") as file:
        json.dump({name: value for name, value in end.items() if name != "event"}, file, indent=1)
    learning_curve(run.records.rows, job.metric, folder / "learning_curve.png")
    if "confusion" in end:
        confusion_matrix(end["confusion"], end["labels"], folder / "confusion_matrix.png")


class _Occasions(TrainerCallback):
    """The last step is measured too, and there are checkpoints between the evaluations, ``save_every`` steps apart.

    The Trainer can save only where it evaluates, once it is to keep the best checkpoint (``load_best_model_at_end``).
    """

    def __init__(self, save_every: int | None) -> None:
        self.save_every = save_every

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for an evaluation, or for a checkpoint."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True
        if self.save_every is not None and state.global_step % self.save_every == 0:
            control.should_save = True


def _train(job: FinetuningJob, run: RunFolder, *, progress: bool) -> None:
    """From where the run stands to its last step, then measure the best model."""
    settings, records = job.settings, run.records
    if run.steps is None:
        run.fix_steps(_steps(job), job.process)
    steps = run.steps
    assert steps is not None

    def measured() -> dict[str, float]:
        values = {name: value for name, value in job.scores().items() if isinstance(value, float)}
        records.add("evaluation", trainer.state.global_step, **values)
        return values

    every = min(steps, math.ceil(job.steps_per_epoch / settings.evaluations_per_epoch))
    save_every = (settings.save_every_steps or math.ceil(steps / 10)) if run.kept else None
    callbacks: list[TrainerCallback] = [
        _Occasions(save_every), RecordingCallback(records, "fine-tuning", dict, shown=progress)
    ]  # fmt: skip
    if settings.early_stopping is not None:
        callbacks.append(EarlyStoppingCallback(settings.early_stopping))
    trainer = NumberedStepsTrainer(
        job.model,
        training_arguments(
            run.folder, settings, learning_rate=settings.learning_rate, steps=steps, evaluate_every=every,
            save_every=every, load_best_model_at_end=True,
            metric_for_best_model=job.metric, greater_is_better=job.metric != "loss",
        ),
        source=job, part_loss=job.part_loss, measure=measured, dtype=job.dtype, callbacks=callbacks,
        optimizer_groups=lambda model: _groups(trainer, model, settings),
    )  # fmt: skip
    if settings.gradient_checkpointing:
        checkpoint_activations(job.model, on=True)
    trainer.run(run.checkpoint)
    if settings.gradient_checkpointing:
        checkpoint_activations(job.model, on=False)
    job.model.eval()
    best = {"best_step": trainer.state.best_global_step, "texts_truncated": job.truncated}
    records.add("end", trainer.state.global_step, **job.scores(), **best)


def _steps(job: FinetuningJob) -> int:
    """Optimiser steps of the smallest budget."""
    settings = job.settings
    budgets = [max(1, math.ceil(settings.epochs * job.steps_per_epoch))]
    if settings.max_steps is not None:
        budgets.append(settings.max_steps)
    if settings.max_minutes is not None:
        began = time.perf_counter()
        job.predict()
        measuring = (time.perf_counter() - began) * (settings.epochs * settings.evaluations_per_epoch + 2)
        budgets.append(
            steps_in_minutes(
                job.model, job, job.part_loss, minutes=settings.max_minutes, overhead=measuring, dtype=job.dtype,
                device=job.device, shown=job.progress,
            )
        )  # fmt: skip
    return min(budgets)


def _groups(trainer: NumberedStepsTrainer, model: nn.Module, settings: FinetuningSettings) -> list[dict[str, Any]]:
    """Parameters by weight decay and learning rate: encoder and head, matrices and vectors."""
    decayed = set(trainer.get_decay_parameter_names(model))
    assert isinstance(model, PreTrainedModel)
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    groups = []
    for in_head, decays in ((False, True), (False, False), (True, True), (True, False)):
        chosen = [
            parameter for name, parameter in model.named_parameters()
            if parameter.requires_grad and (id(parameter) not in encoder) == in_head and (name in decayed) == decays
        ]  # fmt: skip
        rate = (settings.head_learning_rate if in_head else None) or settings.learning_rate
        if chosen:
            groups.append({"params": chosen, "weight_decay": settings.weight_decay if decays else 0.0, "lr": rate})
    return groups
