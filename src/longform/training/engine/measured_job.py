"""Trainings that are measured before, meanwhile and after: base of distillation, alignment and pre-training.

A record of ``event`` is added at each measurement, and one of the end.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Protocol

from torch import nn

from longform.training.engine.job import Job, smallest_budget
from longform.training.engine.records import RecordingCallback, show_measures
from longform.training.engine.run_folder import RunFolder
from longform.training.engine.students import learning
from longform.training.engine.trainer import NumberedStepsTrainer, checkpoints_apart, training_arguments


class Measured(Protocol):
    """One measurement, a NamedTuple; ``summary``: the numbers of it that are shown and compared."""

    def summary(self) -> dict[str, float]: ...

    def _asdict(self) -> dict[str, Any]: ...


class MeasuredJob(Job):
    """``event``: the name of the records of measurements; ``doing``: what is shown to be going on."""

    doing: ClassVar[str]

    @property
    def is_measured(self) -> bool:
        """Whether there is something to measure on."""
        return True

    def facts(self) -> dict[str, Any]:
        """Facts for the first record; none: there is no such record."""
        return {}

    @abstractmethod
    def measure(self) -> Measured:
        """Measurement now, in evaluation mode."""

    @abstractmethod
    def prepared(self) -> AbstractContextManager[None]:
        """The model ready to learn, and given back as it was but for its weights."""

    @abstractmethod
    def budgets(self) -> tuple[float, ...]:
        """Optimiser steps of the budgets of this kind of training, beside those of every kind."""

    @abstractmethod
    def end(self, run: RunFolder, steps: int) -> dict[str, Any]:
        """Facts for the record of the end, after the last measurement."""

    @abstractmethod
    def means(self) -> dict[str, float]:
        """Means over the steps since this was last asked: the parts of the loss, and what else is recorded."""

    def train(self, run: RunFolder, *, shown: bool) -> None:
        """See Job."""
        records = run.records

        def measured(step: int | None = None) -> dict[str, float]:
            found = self.measure()
            records.add(self.event, trainer.state.global_step if step is None else step, **found._asdict())
            if shown and step is not None:  # the others are the Trainer's, which shows them
                show_measures(self.doing, step, found.summary())
            return found.summary()

        with self.prepared():
            if run.steps is None:
                records.begin()  # of a run that was killed before this had an end
                if facts := self.facts():
                    records.add("run", 0, **facts)
                began = time.perf_counter()
                if self.is_measured:
                    measured(0)
                run.fix_steps(self._steps(time.perf_counter() - began, shown=shown), self.process)
            steps = run.steps
            assert steps is not None
            parts = self.settings.evaluations + 1  # of the run, between which the model is measured
            evaluate_every = math.ceil(steps / parts) if self.is_measured and parts > 1 else None
            arguments = training_arguments(self, run, steps, evaluate_every, checkpoints_apart(self, run, steps))
            callback = RecordingCallback(records, self.doing, self.means, shown=shown)
            trainer = NumberedStepsTrainer(self, arguments, measure=measured, callbacks=[callback])
            trainer.run(run.checkpoint)
            if self.is_measured and (records.last(self.event) or {}).get("step") != steps:
                measured(steps)
            records.add("end", steps, **self.end(run, steps))

    def _steps(self, seconds_to_measure: float, *, shown: bool) -> int:
        """Optimiser steps of the smallest budget."""
        overhead = seconds_to_measure * (self.settings.evaluations + 2)
        steps = smallest_budget(self, *self.budgets(), overhead=lambda: overhead, shown=shown)
        self.means()  # of the timed steps: not part of the run
        assert steps is not None
        return steps

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
