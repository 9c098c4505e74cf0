"""A training of any kind: a model, its batches by step number, its loss, its budgets, and which run it is.

Distillation, alignment, fine-tuning and pre-training are each a Job; ``trainer`` trains any of them.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from longform.layers.parameter_groups import parameter_groups
from longform.pretrained.weights import load_whole
from longform_text.training.engine.records import learning_curve
from longform_text.training.engine.run_folder import RunFolder
from longform_text.training.engine.settings import autocast, compute_dtype
from longform_text.training.engine.students import Student, learning


class Part(Protocol):
    """Texts that pass through the model together; ``weight``: how much of it there is (tokens, texts)."""

    @property
    def weight(self) -> float: ...


class Job(ABC):
    """``opened``: the model with its tokenizer; ``trained``: what of it learns.

    ``settings``: those of its kind of training; ``process``: accelerate's PartialState, this process among those that
    train together. ``event``: the name of the records that measure the model, ``metric`` the number of them that the
    learning curve shows. ``best``: the number that says which weights are kept; None: the last ones are.
    """

    kind: ClassVar[str]
    doing: ClassVar[str]  # what is shown to be going on
    event: ClassVar[str]
    metric: str
    best: str | None = None
    measured_before: ClassVar[bool] = True
    opened: Student
    trained: nn.Module

    def __init__(self, settings: Any, process: Any) -> None:
        self.settings, self.process = settings, process
        self.device, self.dtype = process.device, compute_dtype(settings.dtype, process.device)
        self._sums: dict[str, Any] = {}
        self._shares = 0.0

    @abstractmethod
    def subject(self) -> dict[str, Any]:
        """Facts of model and data that must be the same for an interrupted run to go on."""

    @abstractmethod
    def budgets(self) -> Sequence[float]:
        """Optimiser steps of the budgets of this kind of training, beside ``max_steps``."""

    @abstractmethod
    def steps(self, start: int = 0) -> Iterator[Sequence[Part]]:
        """The parts of each optimiser step from ``start`` on, without end; the n-th is the same in every run."""

    @abstractmethod
    def part_loss(self, model: nn.Module, part: Any, share: float, /) -> Tensor:
        """The loss of a part of a step (scalar), of which it is ``share``; ``model``: ``trained``, perhaps wrapped."""

    @abstractmethod
    def measure(self) -> dict[str, Any]:
        """Measurement now, in evaluation mode, as it is recorded."""

    @abstractmethod
    def prepared(self) -> AbstractContextManager[None]:
        """The model ready to learn, and given back as it was but for its weights."""

    @abstractmethod
    def end(self, run: RunFolder, steps: int) -> dict[str, Any]:
        """Facts for the record of the end, after the last measurement."""

    def facts(self) -> dict[str, Any]:
        """Facts for the first record; none: there is no such record."""
        return {}

    def note(self, share: float, **values: Any) -> None:
        """Add numbers of a part, ``share`` of its step, to those of which ``means`` gives the means."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * share
        self._shares += share

    def means(self) -> dict[str, float]:
        """Means over the steps since this was last asked: the parts of the loss, and what else is recorded."""
        means = {name: float(value) / self._shares for name, value in self._sums.items()}
        self._sums, self._shares = {}, 0.0
        return means

    def summary(self, measured: dict[str, Any]) -> dict[str, float]:
        """The numbers of a measurement that are shown."""
        return {name: value for name, value in measured.items() if isinstance(value, float)}

    def measure_every(self, steps: int) -> int | None:
        """Steps between two measurements; None: nothing is measured."""
        return math.ceil(steps / (self.settings.evaluations + 1))

    def count_steps(self) -> int:
        """Optimiser steps of the smallest budget but that of minutes."""
        chosen = [] if self.settings.max_steps is None else [self.settings.max_steps]
        return min((math.ceil(steps) for steps in [*chosen, *self.budgets()]), default=sys.maxsize)

    @property
    def is_unbounded(self) -> bool:
        """Whether neither steps nor minutes were chosen."""
        return self.settings.max_steps is None and self.settings.max_minutes is None

    def save(self, run: RunFolder, folder: Path) -> None:
        """Everything that the finished folder holds."""
        self.opened.save(folder)
        learning_curve(run.records.rows, self.event, self.metric, folder / "learning_curve.png")

    def load(self, folder: Path) -> None:
        """Take up the weights of a finished folder."""
        model = self.opened.model
        model.load_state_dict(load_whole(type(model), folder, dtype=model.dtype).state_dict())

    def identity(self) -> dict[str, Any]:
        """Facts that must be the same for an interrupted run to go on; the device may be another."""
        settings = {name: value for name, value in vars(self.settings).items() if name != "device"}
        return {"kind": self.kind, "settings": settings, **self.subject(), "processes": self.process.num_processes}

    @property
    def learning_rate(self) -> float:
        """The highest learning rate of the run."""
        return self.settings.learning_rate

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Trained parameters of ``model`` by learning rate and weight decay, as optimizers take them."""
        return parameter_groups(model, lr=self.learning_rate, weight_decay=self.settings.weight_decay)

    def make_optimizers(self, model: nn.Module) -> list[Optimizer]:
        """AdamW of the groups; of several optimizers each trains some of the parameters."""
        return [torch.optim.AdamW(self.groups(model), lr=self.learning_rate, fused=True)]

    def autocast(self) -> torch.autocast:
        """Inside, matrix products are in the chosen dtype."""
        return autocast(self.device, self.dtype)

    @contextmanager
    def learning(self) -> Generator[None]:
        """The model in its training state: a pooler stays, which no loss sees, and word vectors unless they are to
        learn.
        """
        chosen, model = self.settings, self.opened.model
        words = model.get_input_embeddings().weight
        assert isinstance(words, nn.Parameter)
        pooler = [p for name, p in model.named_parameters() if "pooler" in name.split(".")]
        frozen = pooler if chosen.train_word_embeddings else [words, *pooler]
        with learning(model, dropout=chosen.dropout, frozen=frozen, recompute=chosen.gradient_checkpointing):
            yield
