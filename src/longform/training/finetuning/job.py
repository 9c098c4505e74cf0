"""A fine-tuning: labelled texts as numbered batches, the loss, and how the model is measured.

Axes: B texts, n tokens, L labels.
"""

import csv
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from tqdm import tqdm
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from longform.data.batching import TokenizedText, batches_of, tokenize
from longform.data.storage import atomic_write
from longform.data.text import clean_text
from longform.errors import ConfigurationError, InputError
from longform.evaluation import classification
from longform.inference.loading import checked_limit, token_limit
from longform.runs.digest import content_key
from longform.runs.page import Block, Heading, facts_table
from longform.runs.subject import model_key
from longform.training.engine.job import Job, smallest_budget
from longform.training.engine.optimizers import split_groups
from longform.training.engine.pictures import confusion_matrix
from longform.training.engine.records import RecordingCallback
from longform.training.engine.run_folder import RunFolder
from longform.training.engine.settings import FinetuningSettings
from longform.training.engine.students import Student, learning
from longform.training.engine.trained_card import write_card
from longform.training.engine.trainer import NumberedStepsTrainer, checkpoints_apart, training_arguments
from longform.training.finetuning.labels import MULTI, REGRESSION, SINGLE, Examples, LabelScheme

LEFT_OUT_OF_CARD = ("step", "best_step", "texts_truncated", "seconds")
METRICS = {
    SINGLE: ("macro_f1", "accuracy", "loss"),
    MULTI: ("macro_f1", "micro_f1", "loss"),
    REGRESSION: ("spearman", "loss"),
}
TOKENIZED_AT_ONCE = 256


class LabelledBatch(NamedTuple):
    """``places``: of the texts in their part. ``inputs``: of the model, (B, n) each.

    ``targets``: long (B), float (B, L), or float (B) for regression.
    """

    places: list[int]
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


class _Occasions(TrainerCallback):
    """The last step is measured too, and there are checkpoints between the evaluations, ``save_every`` steps apart.

    The Trainer can save only where it evaluates, once it is to keep the best checkpoint (``load_best_model_at_end``).
    """

    def __init__(self, save_every: int | None) -> None:
        self.save_every = save_every

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Ask for an evaluation, or for a checkpoint."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True
        if self.save_every is not None and state.global_step % self.save_every == 0:
            control.should_save = True


class FinetuningJob(Job):
    """A model, its texts, its loss and how it is measured."""

    kind, event = "fine-tuning", "evaluation"

    def __init__(
        self,
        opened: Student,
        scheme: LabelScheme,
        train: Examples,
        validation: Examples,
        settings: FinetuningSettings,
        process: Any,
        *,
        progress: bool,
    ) -> None:
        super().__init__(settings, process)
        self.opened, self.scheme = opened, scheme
        self.metric = settings.metric or METRICS[scheme.task][0]
        if self.metric not in METRICS[scheme.task]:
            raise ConfigurationError(
                f'metric="{self.metric}" does not go with {scheme.task} labels: {", ".join(METRICS[scheme.task])}'
            )
        limit = token_limit(opened.model, opened.tokenizer)
        self.max_length = checked_limit(limit, settings.max_length, name="the model")
        self.data = content_key(train, validation)
        self.trained = opened.model.to(process.weights_device)
        self.progress = progress and process.is_main_process
        self.taught = self._prepare(train, "the training part")
        self.validation = self._prepare(validation, "the validation part")
        self.truncated = sum(text.truncated > 0 for text in self.taught.texts)

    def _prepare(self, examples: Examples, where: str) -> _Part:
        targets = self.scheme.encode(examples.labels, where=where)
        texts = examples.inputs()
        tokenized: list[TokenizedText] = []
        shown = tqdm(total=len(texts), desc=f"tokenising {where}", unit="text", leave=False, disable=not self.progress)
        with shown:
            for start in range(0, len(texts), TOKENIZED_AT_ONCE):
                some = texts[start : start + TOKENIZED_AT_ONCE]
                tokenized += tokenize(some, self.opened.tokenizer, max_length=self.max_length)
                shown.update(len(some))
        return _Part(tokenized, targets)

    def understood(self) -> str:
        """Summary of what is to be learned from how many texts, for a person to check before the training."""
        taught, held = self.taught.texts, self.validation.texts
        cut = sum(text.truncated > 0 for text in (*taught, *held))
        parts = f"{len(taught):,} to train on, {len(held):,} held out, {cut:,} cut at {self.max_length:,} tokens"
        return f"{self.scheme.described(self.taught.targets)}; {parts}"

    def subject(self) -> dict[str, Any]:
        """The model, and both parts of the texts."""
        return {"model": model_key(self.trained), "data": self.data}

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one pass over the training part."""
        return len(self._order(0))

    def _order(self, epoch: int) -> list[list[int]]:
        """The texts of each step of one pass, over all processes; each reader gets one text of a step at least."""
        order = list(range(len(self.taught.texts)))
        random.Random(f"pass {epoch} {self.settings.seed}").shuffle(order)
        together = self.settings.batch_size * self.process.readers
        steps = [order[start : start + together] for start in range(0, len(order), together)]
        if len(steps[-1]) < self.process.readers:
            steps[-1] = order[-self.process.readers :]
        return steps

    def steps(self, start: int = 0) -> Iterator[list[LabelledBatch]]:
        """From step ``start`` on, without end."""
        rank, processes = self.process.reader, self.process.readers
        every = (places for epoch in count() for places in self._order(epoch))
        for places in islice(every, start, None):
            yield list(self._batches(self.taught, places[rank::processes]))

    def _batches(self, part: _Part, places: Sequence[int]) -> Iterator[LabelledBatch]:
        """Texts grouped by length, so that little of a batch is padding."""
        tokenizer = self.opened.tokenizer
        for batch in batches_of([part.texts[place] for place in places], tokenizer, self.settings.tokens_per_forward):
            inputs = batch.model_inputs()
            if "token_type_ids" not in tokenizer.model_input_names:
                inputs.pop("token_type_ids", None)
            chosen = [places[index] for index in batch.indices]
            yield LabelledBatch(chosen, inputs, torch.tensor([part.targets[place] for place in chosen]))

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
        self.trained.eval()
        mine = range(self.process.reader, len(self.validation.texts), self.process.readers)
        rows: list[tuple[int, np.ndarray]] = []
        with tqdm(total=len(mine), desc="validation", unit="text", leave=False, disable=not self.progress) as bar:
            for batch, counts in self.process.level(list(self._batches(self.validation, mine or range(1)))):
                with self.autocast():
                    logits = self._logits(self.trained, batch).cpu().numpy()
                rows += zip(batch.places, logits, strict=True)
                bar.update(len(logits) if counts else 0)
        if self.process.num_processes > 1:
            from accelerate.utils import gather_object

            rows = gather_object(rows)
        found = dict(rows)  # several processes may have read one text
        return np.stack([found[place] for place in sorted(found)])

    def scores(self) -> dict[str, Any]:
        """Metrics on the validation part, with ``confusion`` and ``labels`` for single labels."""
        logits, targets = self.predict(), np.array(self.validation.targets)
        if not np.isfinite(logits).all():
            raise InputError(
                "what the model says of the validation part is NaN or infinite: "
                f"lower learning_rate ({self.learning_rate})"
            )
        wanted = torch.from_numpy(targets).to(torch.long if self.scheme.task == SINGLE else torch.float32)
        loss = float(self._loss(torch.from_numpy(logits), wanted))
        if self.scheme.task == SINGLE:
            found = asdict(classification.classification_scores(logits, targets, self.scheme.names))
        elif self.scheme.task == MULTI:
            found = asdict(classification.multi_label_scores(logits, targets))
        else:
            values = asdict(classification.regression_scores(logits, targets))
            found = {name: value if math.isfinite(value) else 0.0 for name, value in values.items()}  # no correlation
        return {"loss": loss, **found}

    def train(self, run: RunFolder, *, shown: bool) -> None:
        """See Job; the model then is the best one, which is measured."""
        settings, records = self.settings, run.records
        if run.steps is None:
            run.fix_steps(self._steps(), self.process)
        steps = run.steps
        assert steps is not None

        def measured() -> dict[str, float]:
            values = {name: value for name, value in self.scores().items() if isinstance(value, float)}
            records.add("evaluation", trainer.state.global_step, **values)
            return values

        every = min(steps, math.ceil(self.steps_per_epoch / settings.evaluations_per_epoch))
        arguments = training_arguments(
            self,
            run,
            steps,
            every,
            every,
            load_best_model_at_end=True,
            metric_for_best_model=self.metric,
            greater_is_better=self.metric != "loss",
        )
        recording = RecordingCallback(records, "fine-tuning", dict, shown=shown)
        callbacks: list[TrainerCallback] = [_Occasions(checkpoints_apart(self, run, steps)), recording]
        if settings.early_stopping is not None:
            callbacks.append(EarlyStoppingCallback(settings.early_stopping))
        trainer = NumberedStepsTrainer(self, arguments, measure=measured, callbacks=callbacks)
        with learning(self.trained, recompute=settings.gradient_checkpointing):
            trainer.run(run.checkpoint)
        best = {"best_step": trainer.state.best_global_step, "texts_truncated": self.truncated}
        records.add("end", trainer.state.global_step, **self.scores(), **best)

    def _steps(self) -> int:
        """Optimiser steps of the smallest budget."""
        evaluations = self.settings.epochs * self.settings.evaluations_per_epoch + 2

        def measuring() -> float:
            began = time.perf_counter()
            self.predict()
            return (time.perf_counter() - began) * evaluations

        passes = max(1, self.settings.epochs * self.steps_per_epoch)
        steps = smallest_budget(self, passes, overhead=measuring, shown=self.progress)
        assert steps is not None
        return steps

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """See Job; the head has a learning rate of its own."""
        encoder, head = split_groups(super().groups(model), set(getattr(model, "base_model", model).parameters()))
        ratio = (self.settings.head_learning_rate or self.learning_rate) / self.learning_rate
        return [*encoder, *(group | {"lr": group["lr"] * ratio} for group in head)]

    def save(self, run: RunFolder, folder: Path) -> None:
        """The model, its scores, and which labels it takes for which others."""
        super().save(run, folder)
        end = run.records.last("end") or {}
        with atomic_write(folder / "metrics.json") as file:
            json.dump({name: value for name, value in end.items() if name not in ("event", "seconds")}, file, indent=1)
        write_card(folder, self.opened, "fine-tuned", self._told(end))
        if "confusion" in end:
            confusion_table(end["confusion"], end["labels"], folder / "confusion.csv")
            confusion_matrix(end["confusion"], end["labels"], folder / "confusion_matrix.png")

    def _told(self, end: dict[str, Any]) -> list[Block]:
        """Paragraphs of the model card; ``end``: the last scores."""
        scores = {name: value for name, value in end.items() if isinstance(value, int | float)}
        shown = {name.replace("_", " "): f"{scores[name]:.4f}" for name in scores if name not in LEFT_OUT_OF_CARD}
        names = self.scheme.names
        labels = ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")
        what = "It gives a number." if self.scheme.task == REGRESSION else f"Labels: {labels}."
        return [
            f"An encoder fine-tuned on labelled texts ({self.scheme.task}, longform finetune). {what}",
            Heading("Evaluation"),
            f"On {len(self.validation.targets):,} texts that were not trained on, but chose the best step:",
            facts_table(shown),
        ]


def confusion_table(counts: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Counts as a csv file: a line for each true and predicted label that occur together."""
    names = [clean_text(label)[0] for label in labels]
    with atomic_write(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["true", "predicted", "texts"])
        for name, row in zip(names, counts, strict=True):
            table.writerows([name, other, value] for other, value in zip(names, row, strict=True) if value)
