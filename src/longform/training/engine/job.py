"""A training of any kind: a model, its batches by step number, its loss, its budget, and which run it is.

Distillation, fine-tuning and pre-training are each a Job; ``trainer`` trains any of them.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from longform.layers.parameter_groups import parameter_groups
from longform.training.engine.checkpoints import load_weights
from longform.training.engine.kept_memory import kept_memory
from longform.training.engine.pictures import learning_curve
from longform.training.engine.processes import Processes
from longform.training.engine.run_folder import RunFolder
from longform.training.engine.settings import autocast, compute_dtype
from longform.training.engine.students import Student

TIMED_STEPS = 5
ELSEWHERE = ("device", "fsdp", "fsdp_dtype", "sequence_parallel")  # settings that may be others when it goes on


class Part(Protocol):
    """Texts that pass through the model together; ``weight``: how much of it there is (tokens, texts)."""

    @property
    def weight(self) -> float: ...


class Job(ABC):
    """``opened``: the model with its tokenizer; ``trained``: what of it learns.

    ``settings``: those of its kind of training; ``process``: this one of those that train together.
    """

    kind: ClassVar[str]
    event: ClassVar[str]  # of records that measure the model, and the number of them that the learning curve shows
    metric: str
    opened: Student
    trained: Any  # a PreTrainedModel, or a module that saves itself as one does (``save_pretrained``)

    def __init__(self, settings: Any, process: Processes) -> None:
        self.settings, self.process = settings, process
        self.device, self.dtype = process.device, compute_dtype(settings.dtype, process.device)

    @abstractmethod
    def subject(self) -> dict[str, Any]:
        """Facts of model and data that must be the same for an interrupted run to go on."""

    @abstractmethod
    def steps(self, start: int = 0) -> Iterator[Sequence[Part]]:
        """The parts of each optimiser step from ``start`` on, without end; the n-th is the same in every run."""

    @abstractmethod
    def part_loss(self, model: nn.Module, part: Any, share: float, /) -> Tensor:
        """The loss of a part of a step (scalar), of which it is ``share``; ``model``: ``trained``, perhaps wrapped."""

    @abstractmethod
    def train(self, run: RunFolder, *, shown: bool) -> None:
        """From where the run stands to its last step; the model then has its final weights."""

    def save(self, run: RunFolder, folder: Path) -> None:
        """Everything that the finished folder holds."""
        self.opened.save(folder)
        learning_curve(run.records.rows, self.event, self.metric, folder / "learning_curve.png")

    def load(self, folder: Path) -> None:
        """Take up the weights of a finished folder."""
        load_weights(self.opened.model, folder)

    def identity(self) -> dict[str, Any]:
        """Facts that must be the same for an interrupted run to go on."""
        settings = {name: value for name, value in vars(self.settings).items() if name not in ELSEWHERE}
        return {"kind": self.kind, "settings": settings, **self.subject(), "processes": self.process.readers}

    @property
    def learning_rate(self) -> float:
        """The highest."""
        return self.settings.learning_rate

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Trained parameters of ``model`` by learning rate and weight decay, as optimizers take them."""
        return parameter_groups(model, lr=self.learning_rate, weight_decay=self.settings.weight_decay)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """AdamW of the groups."""
        return torch.optim.AdamW(self.groups(model), lr=self.learning_rate, fused=True)

    def autocast(self) -> torch.autocast:
        """Inside, matrix products are in the chosen dtype."""
        return autocast(self.device, self.dtype)


def smallest_budget(job: Job, *budgets: float, overhead: Callable[[], float], shown: bool) -> int | None:
    """Optimiser steps of the smallest of ``budgets`` and of the settings' steps and minutes; None without any.

    ``overhead``: seconds that are not for steps.
    """
    found = [math.ceil(budget) for budget in budgets]
    if job.settings.max_steps is not None:
        found.append(job.settings.max_steps)
    if job.settings.max_minutes is not None:
        seconds = job.settings.max_minutes * 60 - overhead()
        found.append(max(1, int(seconds / _seconds_of_a_step(job, shown=shown))))
    return min(found, default=None)


def _seconds_of_a_step(job: Job, *, shown: bool) -> float:
    """Forward and backward of a few steps, the first of which does not count; nothing is learned from them."""
    seconds, batches, model = [], job.steps(), job.trained
    model.train()
    with kept_memory(job.device), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        for _ in tqdm(range(TIMED_STEPS + 1), desc="timing steps", leave=False, disable=not shown):
            parts = next(batches)
            began = time.perf_counter()
            for part, _ in job.process.level(parts):
                with job.autocast():
                    loss = job.part_loss(model, part, 1.0)
                loss.backward()
            float(loss.detach())
            seconds.append(time.perf_counter() - began)
            model.zero_grad()
    return sum(seconds[1:]) / TIMED_STEPS + _optimiser_seconds(job)


def _optimiser_seconds(job: Job) -> float:
    """Seconds of clipping and an update, measured on copies of the trained tensors, which learn nothing."""
    copies = nn.Module()
    for name, p in job.trained.named_parameters():
        if p.requires_grad:
            copies.register_parameter(name.replace(".", "_"), nn.Parameter(torch.zeros_like(p, device=job.device)))
    optimizer = job.make_optimizer(copies)
    seconds = []
    for _ in range(2):
        for p in copies.parameters():
            p.grad = torch.ones_like(p)
        began = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(copies.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    return seconds[-1]
