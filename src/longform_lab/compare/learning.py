"""Training of one architecture on one task: numbered batches, AdamW, checkpoints to go on from, best weights kept.

Axes: B texts, n tokens, L labels.
"""

import io
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from longform.choices import DTYPES
from longform.errors import InputError
from longform.files import atomic_write
from longform.layers.parameter_groups import parameter_groups
from longform_lab.compare.sequences import LabelledSequences, SequenceTask
from longform_text.data.batching import group_by_length, padded
from longform_text.data.progress import hidden
from longform_text.evaluation.classification import ClassificationScores, classification_scores
from longform_text.inference.loading import pick_dtype
from longform_text.settings import check_between, check_choices, check_positive
from longform_text.training.trainer import reading

CHECKPOINT = "checkpoint.pt"  # tensors and numbers only; read by torch.load(weights_only=True)
LOGGED = 200  # training losses that are written down, each a mean


@dataclass(frozen=True)
class LearningSettings:
    """The budget, the same for every architecture.

    ``tokens_per_forward``: tokens, padding included, that pass through the model at once; a step's texts are grouped by
    length into such parts, and gradients accumulated.
    ``evaluations``: how often the validation part is measured at most, at even distances; the best weights are kept,
    and tested in the end.
    """

    steps: int = 500  # of the optimiser
    batch_size: int = 32  # texts of a step
    tokens_per_forward: int = 8192
    learning_rate: float = 1e-3  # the highest, of AdamW
    warmup: float = 0.1  # part of the steps (0 to 1) in which the rate rises from 0; after that it falls linearly to 0
    weight_decay: float = 0.0  # of AdamW, on matrices only
    max_grad_norm: float = 1.0  # gradients are scaled down to this norm
    evaluations: int = 10
    seed: int = 0  # of weights, order and dropout
    dtype: str = "float32"  # of the matrix products: float32, bfloat16, or auto (bfloat16 where CPU or GPU has it)
    checkpoint_seconds: float = 120.0  # between two checkpoints

    def __post_init__(self) -> None:
        check_positive(
            self, "steps", "batch_size", "tokens_per_forward", "learning_rate", "evaluations", "max_grad_norm"
        )
        check_between(self, 0, 1, "warmup")
        check_choices(self, dtype=DTYPES)

    def rate(self, step: int) -> float:
        """Share of the learning rate at a step, from 0."""
        rising = self.warmup * self.steps
        return min(1.0, (step + 1) / rising) if step < rising else (self.steps - step) / max(1.0, self.steps - rising)


@dataclass
class Progress:
    """How far a run is. ``seconds``: wall clock, ``cpu_seconds``: of this process; of training steps only."""

    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    tokens: int = 0
    best_accuracy: float = -1.0
    best_step: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # since the last row

    def add(self, **values: float) -> None:
        """A row with what was measured at this step."""
        self.rows.append({"step": self.step, **values, "seconds": self.seconds, "cpu_seconds": self.cpu_seconds})


class Learner:
    """A model on a task. ``folder``: of its checkpoint, or None to keep nothing."""

    def __init__(
        self,
        model: nn.Module,
        task: SequenceTask,
        settings: LearningSettings,
        *,
        device: torch.device,
        folder: Path | None,
        name: str,
        progress: bool,
    ) -> None:
        self.model, self.task, self.settings, self.device = model.to(device), task, settings, device
        self.folder, self.name, self.shown = folder, name, progress
        self.dtype = pick_dtype(settings.dtype, device)
        self.progress = Progress()
        groups = parameter_groups(model, lr=settings.learning_rate, weight_decay=settings.weight_decay)
        self.rates = [group["lr"] for group in groups]
        self.optimiser = torch.optim.AdamW(groups, fused=True)
        self.best = self._weights()

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}

    def learn(self) -> Progress:
        """From where the checkpoint stands to the last step; the model then has its best weights."""
        self._resume()
        progress, settings = self.progress, self.settings
        saved = time.monotonic()
        bar = tqdm(total=settings.steps, initial=progress.step, desc=self.name, unit="step", disable=hidden(self.shown))
        with bar:
            for places in self._batches(progress.step):
                self._step(places)
                bar.update()
                if progress.step % max(1, settings.steps // LOGGED) == 0 or progress.step == settings.steps:
                    self._log(bar)
                if progress.step % math.ceil(settings.steps / settings.evaluations) == 0:
                    self.measure()
                if time.monotonic() - saved > settings.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
        if not any(row["step"] == settings.steps and "validation_accuracy" in row for row in progress.rows):
            self.measure()
        self._save()
        self.model.load_state_dict(self.best)
        return progress

    def _batches(self, start: int) -> Iterator[list[int]]:
        """Places of the texts of each step; passes are shuffled by number."""
        count = len(self.task.train.labels)
        size = min(self.settings.batch_size, count)
        whole = count // size
        order: list[int] = []
        for step in range(start, self.settings.steps):
            number, at = divmod(step, whole)
            if not order or at == 0:
                order = list(range(count))
                random.Random(f"pass {number} {self.settings.seed}").shuffle(order)
            yield order[at * size : (at + 1) * size]

    def _parts(self, data: LabelledSequences, places: Sequence[int]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Places, inputs and mask of texts of similar lengths."""
        lengths = [len(data.sequences[place]) for place in places]
        for group in group_by_length(lengths, self.settings.tokens_per_forward):
            chosen = [places[number] for number in group]
            sequences = [data.sequences[place] for place in chosen]
            inputs, mask = padded(sequences, dtype=torch.long)
            yield chosen, inputs.to(self.device), mask.to(self.device)

    def _logits(self, inputs: Tensor, mask: Tensor) -> Tensor:
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            return self.model(inputs, mask).float()

    def _step(self, places: Sequence[int]) -> None:
        progress, train = self.progress, self.task.train
        began, cpu = time.perf_counter(), time.process_time()
        self.model.train()
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.settings.rate(progress.step)
        total = 0.0
        for chosen, inputs, mask in self._parts(train, places):
            targets = torch.from_numpy(train.labels[chosen]).long().to(self.device)
            loss = cross_entropy(self._logits(inputs, mask), targets, reduction="sum") / len(places)
            loss.backward()
            total += float(loss.detach())
            progress.tokens += int(mask.sum())
        if not math.isfinite(total):
            raise InputError(
                f"{self.name}: the loss is {total} at step {progress.step}: lower the learning rate "
                f"({self.settings.learning_rate})"
            )
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        progress.step += 1
        progress.losses.append(total)
        progress.seconds += time.perf_counter() - began
        progress.cpu_seconds += time.process_time() - cpu

    def _log(self, bar: tqdm) -> None:
        progress = self.progress
        loss = sum(progress.losses) / len(progress.losses)
        progress.losses.clear()
        progress.add(loss=loss)
        bar.set_postfix(loss=f"{loss:.3f}", best=f"{progress.best_accuracy:.3f}", refresh=False)

    def measure(self) -> None:
        """Scores of the validation part as a row; the best weights so far are kept."""
        scores = self.scores(self.task.validation)
        progress = self.progress
        progress.add(validation_accuracy=scores.accuracy, validation_macro_f1=scores.macro_f1)
        if scores.accuracy > progress.best_accuracy:
            progress.best_accuracy, progress.best_step, self.best = scores.accuracy, progress.step, self._weights()

    @torch.no_grad()
    def scores(self, data: LabelledSequences) -> ClassificationScores:
        """Accuracy, macro-F1 and confusion on a part. The random state is as it was: measuring changes no training."""
        self.model.eval()
        found = np.zeros((len(data.labels), len(data.names)), dtype=np.float32)  # logits (N, L), in the data's order
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(self.settings.seed)  # of Reformer's hashes
            for chosen, inputs, mask in self._parts(data, range(len(data.labels))):
                found[chosen] = self._logits(inputs, mask).cpu().numpy()
        return classification_scores(found, data.labels, data.names)

    def _save(self) -> None:
        if self.folder is None:
            return
        state = {
            "progress": vars(self.progress),
            "model": self.model.state_dict(),
            "best": self.best,
            "optimiser": self.optimiser.state_dict(),
            "random": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        with atomic_write(self.folder / CHECKPOINT, "wb") as file:
            file.write(buffer.getvalue())

    def _resume(self) -> None:
        path = None if self.folder is None else self.folder / CHECKPOINT
        if path is None or not path.exists():
            torch.manual_seed(self.settings.seed)
            return
        with reading(path):
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.progress, self.best = Progress(**state["progress"]), state["best"]
            torch.set_rng_state(state["random"])
            if "random_cuda" in state and self.device.type == "cuda":
                torch.cuda.set_rng_state(state["random_cuda"], self.device)
