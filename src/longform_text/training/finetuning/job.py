"""A fine-tuning: labelled texts as numbered batches, the loss, and how the model is measured.

Axes: B texts, n tokens, L labels.
"""

import json
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import count, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from tqdm import tqdm

from longform.errors import ConfigurationError, InputError
from longform.files import atomic_write, content_key
from longform.pretrained.checkpoint_files import model_key
from longform.pretrained.model_card import Block, Heading, facts_table
from longform_text.data.batching import TokenizedText, batches_of, tokenize
from longform_text.data.progress import hidden
from longform_text.evaluation import classification
from longform_text.inference.loading import checked_limit, token_limit
from longform_text.training.engine.job import Job
from longform_text.training.engine.run_folder import RunFolder
from longform_text.training.engine.settings import FinetuningSettings
from longform_text.training.engine.students import Student, learning
from longform_text.training.engine.trained_card import write_card
from longform_text.training.labels import MULTI, REGRESSION, SINGLE, Examples, LabelScheme

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


class FinetuningJob(Job):
    """A model, its texts, its loss and how it is measured."""

    kind, event, doing = "fine-tuning", "evaluation", "fine-tuning"
    measured_before = False

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
        self.metric = self.best = settings.metric or METRICS[scheme.task][0]
        if self.metric not in METRICS[scheme.task]:
            raise ConfigurationError(
                f'metric="{self.metric}" does not go with {scheme.task} labels: {", ".join(METRICS[scheme.task])}'
            )
        limit = token_limit(opened.model, opened.tokenizer)
        self.max_length = checked_limit(limit, settings.max_length, name="the model")
        self.data = content_key(train, validation)
        self.trained = opened.model.to(self.device)
        self.progress = progress and process.is_main_process
        self.taught = self._prepare(train, "the training part")
        self.validation = self._prepare(validation, "the validation part")
        self.truncated = sum(text.truncated > 0 for text in self.taught.texts)

    def _prepare(self, examples: Examples, where: str) -> _Part:
        targets = self.scheme.encode(examples.labels, where=where)
        texts = examples.inputs()
        tokenized: list[TokenizedText] = []
        shown = tqdm(
            total=len(texts), desc=f"tokenising {where}", unit="text", leave=False, disable=hidden(self.progress)
        )
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
        """The texts of each step of one pass, over all processes; each process gets one text of a step at least."""
        order = list(range(len(self.taught.texts)))
        random.Random(f"pass {epoch} {self.settings.seed}").shuffle(order)
        together = self.settings.batch_size * self.process.num_processes
        steps = [order[start : start + together] for start in range(0, len(order), together)]
        if len(steps[-1]) < self.process.num_processes:
            steps[-1] = order[-self.process.num_processes :]
        return steps

    def steps(self, start: int = 0) -> Iterator[list[LabelledBatch]]:
        """From step ``start`` on, without end."""
        rank, processes = self.process.process_index, self.process.num_processes
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
            return cross_entropy(logits, targets)
        if self.scheme.task == MULTI:
            return binary_cross_entropy_with_logits(logits, targets)
        return mse_loss(logits[:, 0], targets)

    @torch.no_grad()
    def predict(self) -> np.ndarray:
        """Logits float32 (N, L) of the validation part; the processes share the work."""
        mine = range(self.process.process_index, len(self.validation.texts), self.process.num_processes)
        rows: list[tuple[int, np.ndarray]] = []
        with tqdm(total=len(mine), desc="validation", unit="text", leave=False, disable=hidden(self.progress)) as bar:
            for batch in self._batches(self.validation, mine):
                with self.autocast():
                    logits = self._logits(self.trained, batch).cpu().numpy()
                rows += zip(batch.places, logits, strict=True)
                bar.update(len(logits))
        if self.process.num_processes > 1:
            from accelerate.utils import gather_object

            rows = gather_object(rows)
        return np.stack([logits for _, logits in sorted(rows, key=itemgetter(0))])

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

    def measure(self) -> dict[str, float]:
        """See Job."""
        return {name: value for name, value in self.scores().items() if isinstance(value, float)}

    def prepared(self) -> AbstractContextManager[None]:
        """See Job."""
        return learning(self.opened.model, recompute=self.settings.gradient_checkpointing)

    def budgets(self) -> Sequence[float]:
        """Steps of the passes over the training part."""
        return [max(1, self.settings.epochs * self.steps_per_epoch)]

    def measure_every(self, steps: int) -> int:
        """See Job; at even distances in each pass."""
        return min(steps, math.ceil(self.steps_per_epoch / self.settings.evaluations_per_epoch))

    def end(self, run: RunFolder, steps: int) -> dict[str, Any]:
        """See Job; the model is the best one."""
        best_step, _ = run.records.best(self.event, self.metric)
        return {**self.scores(), "best_step": best_step, "texts_truncated": self.truncated}

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """See Job; the head has a learning rate of its own."""
        encoder = set(self.opened.model.base_model.parameters())
        ratio = (self.settings.head_learning_rate or self.learning_rate) / self.learning_rate
        found = []
        for group in super().groups(model):
            inside = [p for p in group["params"] if p in encoder]
            head = [p for p in group["params"] if p not in encoder]
            found += [group | {"params": inside}, group | {"params": head, "lr": group["lr"] * ratio}]
        return [group for group in found if group["params"]]

    def save(self, run: RunFolder, folder: Path) -> None:
        """The model and its scores, with the confusions of its labels."""
        super().save(run, folder)
        end = run.end
        with atomic_write(folder / "metrics.json") as file:
            json.dump({name: value for name, value in end.items() if name not in ("event", "seconds")}, file, indent=1)
        write_card(folder, self.opened, "fine-tuned", self._told(end))

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
