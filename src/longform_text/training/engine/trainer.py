"""The steps of a training: batches in parts of any length, records, measurements, and checkpoints that are whole."""

import contextlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm
from transformers import get_scheduler, set_seed

from longform.errors import CheckpointError, ConfigurationError, InputError, require, some
from longform.models.loading import quiet_transformers
from longform_text.data.progress import hidden
from longform_text.inference.kept_memory import kept_memory
from longform_text.inference.loading import pick_device
from longform_text.training.engine.checkpoints import (
    checkpoint_of,
    checkpoint_step,
    keep_only,
    load_checkpoint,
    reading,
    save_checkpoint,
)
from longform_text.training.engine.job import Job, Part
from longform_text.training.engine.records import show_measures
from longform_text.training.engine.run_folder import RunFolder

TIMED_STEPS = 2  # that tell how many fit into the minutes that were chosen
LOGS = 100  # how many records of the loss a run writes at least


def current_process(device: str = "auto") -> Any:
    """This process among those of ``torchrun`` or ``accelerate launch``, on ``device``: accelerate's PartialState.

    Raises ConfigurationError for a device that is not there (``pick_device``), and for a number of one.
    """
    chosen = pick_device(device)
    if chosen.index:
        raise ConfigurationError(
            f'device="{device}": a training takes the first one; CUDA_VISIBLE_DEVICES={chosen.index} makes it that one'
        )
    states = require("accelerate.state", extra="train")
    cpu = chosen.type == "cpu"
    process = states.PartialState(cpu=cpu)
    if process.device.type != chosen.type:  # an earlier training of this process was elsewhere
        states.AcceleratorState._reset_state(reset_partial_state=True)
        process = states.PartialState(cpu=cpu)
    return process


def check_start(model: nn.Module, what: str) -> None:
    """Raise CheckpointError where weights of ``model``, called ``what``, are NaN or infinite before training."""
    if bad := _not_finite(model):
        raise CheckpointError(f"{what} has weights that are NaN or infinite ({some(bad)}): begin from a sound one")


def check_step(model: nn.Module, *, loss: float, gradient: float, step: int, learning_rate: float) -> None:
    """Raise InputError where a step's loss or gradient norm is not finite; the weights are those before its update."""
    if math.isfinite(loss) and math.isfinite(gradient):
        return
    said = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {gradient}"
    bad = _not_finite(model)
    cause = (
        f"because the update before it made weights NaN or infinite ({some(bad)}): "
        if bad
        else "while every weight is finite: a text or label of this step gives numbers that are too large. Look for "
        'labels of an extreme size, try dtype="float32", or '
    )
    raise InputError(f"{said} at step {step}, {cause}lower learning_rate ({learning_rate})")


def check_end(model: nn.Module, *, learning_rate: float) -> None:
    """Raise InputError where a trained model has weights that are NaN or infinite."""
    if bad := _not_finite(model):
        said = f"the last update made weights NaN or infinite ({some(bad)})"
        raise InputError(f"{said}: lower learning_rate ({learning_rate})")


def _not_finite(model: nn.Module) -> list[str]:
    return [name for name, tensor in model.named_parameters() if not bool(torch.isfinite(tensor).all())]


class Training:
    """The steps of ``job`` from where its ``run`` stands to the last one.

    A step is a list of parts; ``job.part_loss(model, part, share)`` is each part's share of the step's loss, and
    gradients are accumulated over the parts, so that a part need not be padded to another's length. Raises InputError
    at the first step whose loss or gradient is not finite.
    """

    def __init__(self, job: Job, run: RunFolder, *, shown: bool) -> None:
        self.job, self.run, self.shown, self.process = job, run, shown, job.process
        self.model: nn.Module = job.trained
        self.step = 0
        self.losses: list[Tensor] = []  # of the steps since the last record

    def carry_out(self) -> None:
        """Train to the last step, from the beginning or from a checkpoint; the model then has its final weights."""
        job, run = self.job, self.run
        with job.prepared(), kept_memory(job.device):
            if run.steps is None:
                self._begin()
            self._prepare()
            if run.checkpoint is not None:
                self._load(run.checkpoint)
            batches = job.steps(self.step)
            shown = {"desc": job.doing, "unit": "step", "disable": hidden(self.shown)}
            with tqdm(total=self.steps, initial=self.step, **shown) as self.bar:
                while self.step < self.steps and not self._has_stopped():
                    self._take_step(next(batches))
                    self._after_step()
            if best := self._best():
                load_checkpoint(best, job.trained)
            run.records.add("end", self.step, **job.end(run, self.step))

    def _begin(self) -> None:
        """Count the steps of the whole run, and measure what it begins with."""
        self.run.records.begin()  # of a run that was killed before this had an end
        if facts := self.job.facts():
            self.run.records.add("run", 0, **facts)
        job, steps, measuring = self.job, self.job.count_steps(), 0.0
        if job.measured_before and job.measure_every(steps):
            began = time.perf_counter()
            self._measure()
            measuring = (time.perf_counter() - began) * (2 + job.settings.evaluations)  # before, meanwhile, after
        if job.settings.max_minutes is not None:
            seconds = 60 * job.settings.max_minutes - self._mean(measuring)
            steps = min(steps, max(1, int(seconds / self._seconds_of_a_step())))
        self.run.fix_steps(steps)

    def _seconds_of_a_step(self) -> float:
        """Mean over a few steps, after one that does not count; they are carried out, and undone."""
        job, seconds = self.job, []
        before = {name: x.clone() for name, x in job.trained.state_dict().items()}
        optimizers, batches = job.make_optimizers(job.trained), job.steps()
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            for _ in tqdm(range(TIMED_STEPS + 1), desc="timing steps", leave=False, disable=hidden(self.shown)):
                parts = next(batches)
                began = time.perf_counter()
                float(self._backward(parts))
                for each in optimizers:
                    each.step()
                    each.zero_grad()
                seconds.append(time.perf_counter() - began)
        job.trained.load_state_dict(before)
        job.means()  # forgets these steps
        return self._mean(sum(seconds[1:]) / TIMED_STEPS)

    def _prepare(self) -> None:
        job, settings, steps = self.job, self.job.settings, self.run.steps
        assert steps is not None
        self.steps, self.measure_every = steps, job.measure_every(steps)
        self.log_every = max(1, min(50, steps // LOGS))
        self.save_every = settings.save_every_steps or math.ceil(steps / 10)
        set_seed(settings.seed)
        self.optimizers = job.make_optimizers(job.trained)
        schedule = {"constant": "constant_with_warmup"}.get(settings.schedule, settings.schedule)
        warmup = int(settings.warmup * steps)
        self.schedules = [get_scheduler(schedule, each, warmup, steps) for each in self.optimizers]
        if self.process.num_processes > 1:
            # A text within the window does not use the memory's parameters.
            self.model = DistributedDataParallel(job.trained, find_unused_parameters=True)

    def _take_step(self, parts: Sequence[Part]) -> None:
        """Forward, backward and update; the step's loss is kept for the next record."""
        job, total = self.job, self._backward(parts)
        norm = nn.utils.clip_grad_norm_(job.trained.parameters(), job.settings.max_grad_norm)
        self.gradient, self.step = float(norm), self.step + 1
        check_step(
            job.trained, loss=float(total), gradient=self.gradient, step=self.step, learning_rate=job.learning_rate
        )
        self.rate = self.schedules[0].get_last_lr()[0]
        for each in (*self.optimizers, *self.schedules):
            each.step()
        for each in self.optimizers:
            each.zero_grad()
        self.losses.append(total)

    def _backward(self, parts: Sequence[Part]) -> Tensor:
        """The loss of a step, and its gradients over all parts, which processes exchange once."""
        job = self.job
        self.model.train()
        total = torch.zeros((), device=job.device)
        whole = self._mean(sum(part.weight for part in parts))
        for part in parts:
            waits = isinstance(self.model, DistributedDataParallel) and part is not parts[-1]
            with self.model.no_sync() if waits else contextlib.nullcontext():
                with job.autocast():
                    loss = job.part_loss(self.model, part, part.weight / whole)
                loss.backward()
            total += loss.detach()
        return total

    def _mean(self, value: float) -> float:
        """Mean over the processes, as gradients are averaged."""
        if self.process.num_processes == 1:
            return value
        given = torch.tensor(float(value), device=self.job.device)
        return float(require("accelerate.utils", extra="train").reduce(given, reduction="mean"))

    def _after_step(self) -> None:
        """Record, measure and save where it is time to."""
        self.bar.update()
        last = self.step == self.steps
        if self.step % self.log_every == 0:
            self._log()
        measured = self.measure_every is not None and (last or self.step % self.measure_every == 0)
        if measured:
            self._measure()
        timely = self.run.kept and (last or self.step % self.save_every == 0)
        if timely or (measured and self.job.best is not None):
            self._save()

    def _log(self) -> None:
        loss = self._mean(float(torch.stack(self.losses).mean()))
        self.losses = []
        values = {"loss": loss, "grad_norm": self.gradient, "learning_rate": self.rate, **self.job.means()}
        self.run.records.add("train", self.step, **values)
        self.bar.set_postfix(loss=f"{loss:.4f}", refresh=False)

    def _measure(self) -> None:
        self.job.trained.eval()
        measured = self.job.measure()
        self.run.records.add(self.job.event, self.step, **measured)
        if self.shown:
            show_measures(self.job.doing, self.step, self.job.summary(measured))

    def _best(self) -> Path | None:
        """The checkpoint with the best weights so far; None where nothing was measured, or the last ones are kept."""
        job = self.job
        if job.best is None or not self.run.records.of(job.event):
            return None
        return checkpoint_of(self.run.folder, self.run.records.best(job.event, job.best)[0])

    def _has_stopped(self) -> bool:
        """Whether measurements have not become better for as long as was chosen."""
        patience = getattr(self.job.settings, "early_stopping", None)
        if patience is None or self._best() is None:
            return False
        return self.run.records.best(self.job.event, self.job.metric)[1] >= patience

    def _save(self) -> None:
        states = require("accelerate.utils", extra="train").gather_object([_random_states(self.job.device)])
        if self.process.is_main_process:
            file = checkpoint_of(self.run.folder, self.step)
            kept = {name: [each.state_dict() for each in found] for name, found in self._keeping().items()}
            save_checkpoint(file, self.job.trained, random=states, **kept)
            keep_only(self.run.folder, file, self._best())
        self.process.wait_for_everyone()

    def _keeping(self) -> dict[str, list[Any]]:
        """Everything that keeps a state beside the model."""
        return {"optimizers": self.optimizers, "schedules": self.schedules}

    def _load(self, checkpoint: Path) -> None:
        state = load_checkpoint(checkpoint, self.job.trained)
        with reading(checkpoint):
            for name, found in self._keeping().items():
                for each, kept in zip(found, state[name], strict=True):
                    each.load_state_dict(kept)
            states = state["random"]
            _set_random_states(states[self.process.process_index % len(states)], self.job.device)
        self.step = checkpoint_step(checkpoint) or 0


def _random_states(device: torch.device) -> dict[str, Tensor]:
    """States of the random numbers of the CPU and of ``device``."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


def _set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type != "cpu" and device.type in states:  # the run may go on on another device
        torch.get_device_module(device).set_rng_state(states[device.type])


def carry_out(job: Job, folder: Path, *, kept: bool, restart: bool, shown: bool) -> RunFolder:
    """Train what ``folder`` has not finished yet; the job's model then has its final weights.

    ``kept``: the folder outlives the call, with checkpoints, records and the finished model in it.
    """
    process = job.process
    check_start(job.opened.model, "the model to train")
    run = RunFolder(folder, job.identity(), kept=kept, main=process.is_main_process)
    run.open(restart=restart, wait=process.wait_for_everyone)
    if run.complete:
        job.load(folder)
    else:
        Training(job, run, shown=shown and process.is_main_process).carry_out()
        check_end(job.opened.model, learning_rate=job.learning_rate)
        with quiet_transformers():
            run.finish(lambda place: job.save(run, place), wait=process.wait_for_everyone)
    return run
