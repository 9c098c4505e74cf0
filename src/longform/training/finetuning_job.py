"""A model, its labelled texts as numbered batches, its loss and how it is measured.

Axes: B texts, n tokens, L labels.
"""

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from tqdm import tqdm

from longform.data.batching import TokenizedText, collate, group_by_length, tokenize
from longform.errors import ConfigurationError
from longform.evaluation import classification
from longform.inference.loading import token_limit
from longform.training.labels import MULTI, REGRESSION, SINGLE, Examples, LabelScheme
from longform.training.settings import FinetuningSettings, as_dict, compute_dtype
from longform.training.students import Student, fingerprint

METRICS = {
    SINGLE: ("macro_f1", "accuracy", "loss"),
    MULTI: ("macro_f1", "micro_f1", "loss"),
    REGRESSION: ("spearman", "loss"),
}
TOKENIZED_AT_ONCE = 256


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


class FinetuningJob:
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
            found = {
                name: _finite(value)
                for name, value in asdict(classification.regression_scores(logits, targets)).items()
            }
        return {"loss": loss, **found}


def _finite(value: float) -> float:
    """A correlation with a constant is none: 0."""
    return value if math.isfinite(value) else 0.0


def _dtype_of(scheme: LabelScheme) -> torch.dtype:
    return torch.long if scheme.task == SINGLE else torch.float32
