"""Fine-tuning an encoder, Longform or any other of Hugging Face's, on labelled texts.

Axes: B texts, n tokens, L labels.
"""

import contextlib
import hashlib
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from tqdm import tqdm
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

from longform.data.batching import TokenizedText, collate, group_by_length, tokenize
from longform.data.text import atomic_write
from longform.errors import ConfigurationError
from longform.evaluation import classification
from longform.evaluation.loading import token_limit
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
from longform.training.settings import FinetuningSettings, as_dict, compute_dtype
from longform.training.students import (
    Student,
    checkpoint_activations,
    fingerprint,
    with_labels,
)
from longform.training.trainer import (
    NumberedStepsTrainer,
    load_weights,
    steps_in_minutes,
    training_arguments,
    without_bars,
)

PROBLEMS = {
    SINGLE: classification.SINGLE_LABEL,
    MULTI: classification.MULTI_LABEL,
    REGRESSION: classification.REGRESSION,
}
METRICS = {
    SINGLE: ("macro_f1", "accuracy", "loss"),
    MULTI: ("macro_f1", "micro_f1", "loss"),
    REGRESSION: ("spearman", "loss"),
}
TOKENIZED_AT_ONCE = 256


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
    fields = {"text_field": text_field, "label_field": label_field, "pair_field": pair_field}
    process = current_process()
    parts = [x if x is None or isinstance(x, Examples) else read_examples(x, **fields) for x in (train, validation)]
    scheme, taught, held = _split(*parts, settings)
    set_seed(settings.seed)
    opened = with_labels(
        model, len(scheme.names), tokenizer, problem_type=PROBLEMS[scheme.task],
        id2label=dict(enumerate(scheme.names)), label2id={name: i for i, name in enumerate(scheme.names)},
    )  # fmt: skip
    job = _Job(opened, scheme, taught, held, settings, process, progress=progress)
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


def _save(job: "_Job", run: RunFolder, folder: Path) -> None:
    """Everything that the finished folder holds."""
    job.opened.save(folder)
    end = run.records.last("end") or {}
    with atomic_write(folder / "metrics.json") as file:
        json.dump({name: value for name, value in end.items() if name != "event"}, file, indent=1)
    learning_curve(run.records.rows, job.metric, folder / "learning_curve.png")
    if "confusion" in end:
        confusion_matrix(end["confusion"], end["labels"], folder / "confusion_matrix.png")


class LabelledBatch(NamedTuple):
    """``inputs``: of the model, (B, n) each. ``targets``: long (B), float (B, L), or float (B) for regression."""

    inputs: dict[str, Tensor]
    targets: Tensor

    @property
    def weight(self) -> float:
        """Texts in it."""
        return len(self.targets)


class _Part(NamedTuple):
    """Tokenised texts and their targets."""

    texts: list[TokenizedText]
    targets: list[Any]


class _Job:
    """A model, its texts, its loss and how it is measured."""

    def __init__(
        self, opened: Student, scheme: LabelScheme, train: Examples, validation: Examples,
        settings: FinetuningSettings, process: Any, *, progress: bool,
    ) -> None:  # fmt: skip
        self.opened, self.scheme, self.settings, self.process = opened, scheme, settings, process
        self.device, self.dtype = process.device, compute_dtype(settings.dtype, process.device)
        self.metric = settings.metric or METRICS[scheme.task][0]
        if self.metric not in METRICS[scheme.task]:
            raise ConfigurationError(
                f'metric="{self.metric}" does not go with {scheme.task} labels: {", ".join(METRICS[scheme.task])}'
            )
        self.max_length = self._limit()
        digest = hashlib.sha256(repr((train, validation)).encode("utf-8", "replace"))
        self.data = digest.hexdigest()[:16]
        self.model = opened.model.to(self.device)
        self.progress = progress and process.is_main_process
        self.train = self._prepare(train, "the training part")
        self.validation = self._prepare(validation, "the validation part")
        self.truncated = sum(text.truncated > 0 for text in self.train.texts)

    def _limit(self) -> int:
        limit = token_limit(self.opened.model, self.opened.tokenizer)
        wanted = self.settings.max_length
        if wanted is not None and wanted > limit:
            raise ConfigurationError(f"max_length={wanted} is more than the {limit} tokens that the model takes")
        return wanted or limit

    def _prepare(self, examples: Examples, where: str) -> _Part:
        targets = self.scheme.encode(examples.labels, where=where)
        texts: list[Any] = list(examples.texts)
        if examples.pairs is not None:
            texts = list(zip(texts, examples.pairs, strict=True))
        tokenized: list[TokenizedText] = []
        shown = tqdm(total=len(texts), desc=f"tokenising {where}", unit="text", leave=False, disable=not self.progress)
        with shown:
            for start in range(0, len(texts), TOKENIZED_AT_ONCE):
                some = texts[start : start + TOKENIZED_AT_ONCE]
                tokenized += tokenize(some, self.opened.tokenizer, max_length=self.max_length)
                shown.update(len(some))
        return _Part(tokenized, targets)

    def identity(self) -> dict[str, Any]:
        """What must be the same for an interrupted run to go on."""
        return {
            "kind": "fine-tuning", "settings": as_dict(self.settings), "model": fingerprint(self.opened.model),
            "data": self.data, "processes": self.process.num_processes,
        }  # fmt: skip

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one pass over the training part."""
        return len(self._order(0))

    def _order(self, epoch: int) -> list[list[int]]:
        """The texts of each step of one pass, over all processes; each process gets one text of a step at least."""
        order = list(range(len(self.train.texts)))
        random.Random(f"pass {epoch} {self.settings.seed}").shuffle(order)
        together = self.settings.batch_size * self.process.num_processes
        steps = [order[start : start + together] for start in range(0, len(order), together)]
        if len(steps[-1]) < self.process.num_processes:
            steps[-1] = order[-self.process.num_processes :]
        return steps

    def steps(self, start: int = 0) -> Iterator[list[LabelledBatch]]:
        """From step ``start`` on, without end."""
        step = 0
        epoch = 0
        while True:
            for places in self._order(epoch):
                if step >= start:
                    yield self._batches(self.train, places[self.process.process_index :: self.process.num_processes])
                step += 1
            epoch += 1

    def _batches(self, part: _Part, places: Sequence[int]) -> list[LabelledBatch]:
        """Texts grouped by length, so that little of a batch is padding."""
        lengths = [len(part.texts[place].input_ids) for place in places]
        groups = group_by_length(lengths, self.settings.tokens_per_forward)
        return [self._batch(part, [places[number] for number in group]) for group in groups]

    def _batch(self, part: _Part, places: Sequence[int]) -> LabelledBatch:
        inputs = collate(places, [part.texts[place] for place in places], self.opened.tokenizer).model_inputs()
        if "token_type_ids" not in self.opened.tokenizer.model_input_names:
            inputs.pop("token_type_ids", None)
        targets = torch.tensor([part.targets[place] for place in places])
        return LabelledBatch(inputs, targets)

    def part_loss(self, model: nn.Module, batch: LabelledBatch, share: float) -> Tensor:
        """``share`` times the mean loss of the batch."""
        return share * self._loss(self._logits(model, batch), batch.targets.to(self.device))

    def _logits(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        return model(**{name: tensor.to(self.device) for name, tensor in batch.inputs.items()}).logits.float()

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.scheme.task == SINGLE:
            return cross_entropy(logits, targets, label_smoothing=self.settings.label_smoothing)
        if self.scheme.task == MULTI:
            return binary_cross_entropy_with_logits(logits, targets)
        return mse_loss(logits[:, 0], targets)

    @torch.no_grad()
    def predict(self) -> np.ndarray:
        """Logits float32 (N, L) of the validation part; the processes share the work."""
        self.model.eval()
        rank, processes = self.process.process_index, self.process.num_processes
        mine = list(range(rank, len(self.validation.texts), processes))
        lengths = [len(self.validation.texts[place].input_ids) for place in mine]
        groups = list(group_by_length(lengths, self.settings.tokens_per_forward))
        rows: list[tuple[int, np.ndarray]] = []
        for group in tqdm(groups, desc="validation", unit="batch", leave=False, disable=not self.progress):
            places = [mine[number] for number in group]
            with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
                logits = self._logits(self.model, self._batch(self.validation, places)).cpu().numpy()
            rows += zip(places, logits, strict=True)
        if processes > 1:
            from accelerate.utils import gather_object

            rows = gather_object(rows)
        return np.stack([row for _, row in sorted(rows, key=lambda pair: pair[0])])

    def scores(self) -> dict[str, Any]:
        """Metrics on the validation part, with ``confusion`` and ``labels`` for single labels."""
        logits = self.predict()
        targets = np.array(self.validation.targets)
        loss = float(self._loss(torch.from_numpy(logits), torch.from_numpy(targets).to(_dtype_of(self.scheme))))
        if self.scheme.task == SINGLE:
            found = asdict(classification.classification_scores(logits, targets, self.scheme.names))
        elif self.scheme.task == MULTI:
            found = asdict(classification.multi_label_scores(logits, targets))
        else:
            found = {name: _finite(value) for name, value in asdict(_regression(logits, targets)).items()}
        return {"loss": loss, **found}


def _regression(logits: np.ndarray, targets: np.ndarray) -> classification.RegressionScores:
    return classification.regression_scores(logits, targets)


def _finite(value: float) -> float:
    """A correlation with a constant is none: 0."""
    return value if math.isfinite(value) else 0.0


def _dtype_of(scheme: LabelScheme) -> torch.dtype:
    return torch.long if scheme.task == SINGLE else torch.float32


class _EvaluateAtEnd(TrainerCallback):
    """The last step is measured too."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for an evaluation."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True


def _train(job: _Job, run: RunFolder, *, progress: bool) -> None:
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
    callbacks: list[TrainerCallback] = [
        _EvaluateAtEnd(), RecordingCallback(records, "fine-tuning", dict, shown=progress)
    ]  # fmt: skip
    if settings.early_stopping is not None:
        callbacks.append(EarlyStoppingCallback(settings.early_stopping))
    trainer = NumberedStepsTrainer(
        job.model,
        training_arguments(
            run.folder, settings, steps=steps, evaluate_every=every, save_every=every, load_best_model_at_end=True,
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


def _steps(job: _Job) -> int:
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
                device=job.device,
            )
        )  # fmt: skip
    return min(budgets)


def _groups(trainer: NumberedStepsTrainer, model: nn.Module, settings: FinetuningSettings) -> list[dict[str, Any]]:
    """Parameters by weight decay and learning rate: encoder and head, matrices and vectors."""
    decayed = set(trainer.get_decay_parameter_names(model))
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
