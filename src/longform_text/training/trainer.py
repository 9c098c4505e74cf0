"""transformers' Trainer with what long texts, projections and long runs need, and its callbacks.

Axes: B texts of a batch, n tokens.
"""

import contextlib
import io
import math
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_pt_utils import nested_concat

from longform import files
from longform.errors import CheckpointError, InputError, some
from longform.files import atomic_write
from longform.layers.parameter_groups import parameter_groups
from longform.models.loading import quiet_transformers
from longform_text.data.batching import group_by_length
from longform_text.data.progress import hidden
from longform_text.inference.kept_memory import kept_memory

IGNORED = -100  # as a label: a token that is not asked for
STATE = "trainer_state.json"  # the last file of a checkpoint that is written

Loss = Callable[[nn.Module, Any], Tensor]  # a mean over what a batch asks for
Measure = Callable[[nn.Module], dict[str, Any]]


class Trainer(transformers.Trainer):
    """transformers' Trainer, with the same arguments, and for any model.

    A batch of more than ``tokens_per_forward`` tokens passes in parts of texts of similar length, and so does what is
    evaluated; gradients are those of the whole batch. Projections learn at their own rate
    (``longform.parameter_groups``), what is no part of the encoder at ``head_learning_rate``. Memory that is freed
    stays the process's while it trains. A loss that is not finite ends the training with InputError, a checkpoint that
    cannot be written or read with CheckpointError.

    ``loss``: the loss of model and batch, in place of the model's own. ``measure``: what is measured of the model, in
    place of what ``eval_dataset`` and ``compute_metrics`` say. ``make_optimizer``: the optimizer of groups of
    parameters, in place of ``args.optim``.
    """

    model: Any
    optimizer: Any

    def __init__(
        self,
        *given: Any,
        tokens_per_forward: int | None = None,
        head_learning_rate: float | None = None,
        loss: Loss | None = None,
        measure: Measure | None = None,
        make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
        **options: Any,
    ) -> None:
        self.tokens_per_forward, self.head_learning_rate = tokens_per_forward, head_learning_rate
        self.loss, self.measure, self.make_optimizer = loss, measure, make_optimizer
        self._share = 1.0  # of its batch that a part is
        config: Any = getattr(options.get("model", given[0] if given else None), "config", None)
        before = {name: value for name, value in vars(config or object).items() if name == "use_cache"}
        super().__init__(*given, **options)
        if config is not None:  # how a model generates, which transformers switches off, is saved with it
            vars(config).pop("use_cache", None)
            vars(config).update(before)
        # What our models and losses give is a mean over the part that they see.
        self.model_accepts_loss_kwargs = False

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """The optimizer of ``args.optim`` over groups of parameters with rates of their own."""
        model = self.model if model is None else model
        if self.optimizer is None and self.make_optimizer is not None:
            self.optimizer = self.make_optimizer(model)
        if self.optimizer is None:
            kind, how = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, model)
            if {"params", "model", "optimizer_dict"} & how.keys() or not isinstance(kind, type):
                return super().create_optimizer(model)
            self.optimizer = kind(self.groups(model), **how)
        return self.optimizer

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Trained parameters by learning rate and weight decay."""
        rate, found = self.args.learning_rate, []
        ratio = (self.head_learning_rate or rate) / rate
        base = getattr(model, "base_model", model)
        encoder = set(base.parameters())
        for group in parameter_groups(model, lr=rate, weight_decay=self.args.weight_decay):
            inside = [p for p in group["params"] if p in encoder or ratio == 1]
            head = [p for p in group["params"] if p not in encoder and ratio != 1]
            found += [group | {"params": inside}, group | {"params": head, "lr": group["lr"] * ratio}]
        return [group for group in found if group["params"]]

    def train(self, *given: Any, **options: Any) -> Any:
        """See transformers; the model is in evaluation mode afterwards, and its ``forward`` its own."""
        with kept_memory(self.args.device):
            try:
                return super().train(*given, **options)
            finally:
                model = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False).eval()
                if self.args.activation_checkpointing:
                    model.activation_checkpointing_disable()

    def take_up(self, checkpoint: Path) -> bool:
        """Whether the training of a ``checkpoint`` had come to its last step; the model then has its final weights."""
        with reading(checkpoint):
            state = TrainerState.load_from_json(str(checkpoint / STATE))
        if state.global_step < state.max_steps or self.is_fsdp_enabled:
            return False
        self.state = state
        best = state.best_model_checkpoint if self.args.load_best_model_at_end else None
        self._load_from_checkpoint(str(best or checkpoint))
        return True

    def set_initial_training_values(self, *given: Any, **options: Any) -> Any:
        """See transformers; parts of all steps become steps, so that a run that goes on has the same."""
        found = super().set_initial_training_values(*given, **options)
        for name in ("logging_steps", "eval_steps"):
            if 0 < (getattr(self.args, name) or 0) < 1:
                setattr(self.args, name, math.ceil(found[-1] * getattr(self.args, name)))
        if 0 < self.args.warmup_steps < 1:  # transformers rounds up, and the only step of a short run had rate 0
            self.args.warmup_steps = int(found[-1] * self.args.warmup_steps)
        return found

    def parts(self, inputs: Any) -> Iterator[tuple[list[int], Any]]:
        """Rows of a batch that pass together, and the batch of these; one of all where it cannot be parted."""
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        if mask is None or self.tokens_per_forward is None or self.is_fsdp_enabled or not bool(mask[:, 0].all()):
            yield list(range(1 if mask is None else len(mask))), inputs
            return
        lengths = mask.sum(dim=1).tolist()
        for rows in group_by_length(lengths, self.tokens_per_forward):
            longest = max(lengths[row] for row in rows)
            yield rows, {name: _cut(x, rows, longest, mask.shape, name) for name, x in inputs.items()}

    @staticmethod
    def weight(inputs: Any) -> float:
        """How much of its step's loss a part is: tokens that are asked for, texts, or tokens."""
        labels = inputs.get("labels") if isinstance(inputs, Mapping) else None
        if labels is None:
            mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
            return 1.0 if mask is None else float(mask.sum())
        per_token = labels.ndim == 2 and not labels.is_floating_point()
        return float((labels != IGNORED).sum() if per_token else len(labels))

    def _mean(self, value: float) -> float:
        """Mean over the processes, as gradients are averaged: every token counts the same in each."""
        if self.args.world_size == 1:
            return value
        given: Any = torch.tensor(value, device=self.args.device)
        return float(self.accelerator.reduce(given, reduction="mean"))

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """The loss of a batch; its gradients are accumulated over parts, which processes exchange once.

        Raises InputError where it is not finite: the weights are those before the update.
        """
        parts, whole = list(self.parts(inputs)), max(self._mean(self.weight(inputs)), 1.0)
        total = torch.zeros((), device=self.args.device)
        for number, (_, part) in enumerate(parts, start=1):
            self._share = self.weight(part) / whole
            with contextlib.nullcontext() if number == len(parts) else self.accelerator.no_sync(model):
                total += super().training_step(model, part, num_items_in_batch)
        self._share = 1.0
        check_loss(self.model, float(total), step=self.state.global_step + 1, rate=self.args.learning_rate)
        return total

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The share of a batch's loss that ``inputs`` is, with the model's outputs if asked."""
        if self.loss is not None:
            found, outputs = self.loss(model, inputs), None
        else:
            found, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        found = found * self._share
        return (found, outputs) if return_outputs else found

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor | None, Any, Any]:
        """Loss, logits and labels of a batch, which passes in parts."""
        parts = list(self.parts(inputs))
        if len(parts) == 1:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        whole, order, loss = max(self.weight(inputs), 1.0), [], torch.zeros((), device=self.args.device)
        joined: list[Any] = [None, None]
        for rows, part in parts:
            one, *found = super().prediction_step(model, part, prediction_loss_only, ignore_keys)
            if one is not None:
                loss = loss + one * (self.weight(part) / whole)
            order += rows
            joined = [
                new if old is None or new is None else nested_concat(old, new, padding_index=IGNORED)
                for old, new in zip(joined, found, strict=True)
            ]
        back = torch.tensor(order).argsort()
        logits, labels = (x[back.to(x.device)] if isinstance(x, Tensor) else x for x in joined)
        return loss, logits, labels

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, Any]:
        """See transformers; or what ``measure`` says, with the prefix before each name."""
        if self.measure is None or eval_dataset is not None:
            found = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        else:
            self.model.eval()
            dtype = torch.bfloat16 if self.args.bf16 else torch.float32
            with torch.no_grad(), torch.autocast(self.args.device.type, dtype=dtype, enabled=self.args.bf16):
                found = self.measure(self.model)
            found = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
            self.log(found)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        for name, value in found.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(
                    f"{name} is {value} at step {self.state.global_step}: lower learning_rate "
                    f"({self.args.learning_rate}), or look at the data"
                )
        return found

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        try:
            with quiet_transformers():
                super()._save_checkpoint(model, trial)
        except Exception as error:  # of a full disk torch and safetensors make errors of their own
            place = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
            shutil.rmtree(place, ignore_errors=True)
            raise CheckpointError(
                f'"{place}" could not be saved: {error}. Earlier checkpoints are whole: '
                "make room and start again with the same output folder"
            ) from error

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with reading(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_rng_state(checkpoint)


def _cut(x: Tensor, rows: list[int], longest: int, shape: torch.Size, name: str) -> Tensor:
    """Some ``rows`` of a tensor, and of one with a place for each token of a batch (B, n) the first ``longest``."""
    per_token = x.ndim > 1 and x.shape[1] == shape[1] and (name != "labels" or x.shape == shape)
    return x[rows, :longest] if per_token else x[rows]


def reading(checkpoint: str | Path | None) -> contextlib.AbstractContextManager[None]:
    """Turn what goes wrong while a checkpoint is read (a file cut short, another model) into CheckpointError."""
    way_out = "delete it, to go on from the one before or to begin anew, or start in a new output folder"
    return files.reading(Path(str(checkpoint)), way_out=way_out, errors=(Exception,))


def check_loss(model: nn.Module, loss: float, *, step: int, rate: float) -> None:
    """Raise InputError where a step's loss is not finite; ``rate``: the learning rate."""
    if math.isfinite(loss):
        return
    bad = _not_finite(model)
    cause = (
        f"because the update before it made weights NaN or infinite ({some(bad)}): "
        if bad
        else "while every weight is finite: a text or label of this step gives numbers that are too large. Look for "
        "labels of an extreme size, try bf16=False, or "
    )
    raise InputError(f"the loss is {loss} at step {step}, {cause}lower learning_rate ({rate})")


def check_start(model: nn.Module, what: str) -> None:
    """Raise CheckpointError where weights of ``model``, called ``what``, are NaN or infinite before training."""
    if bad := _not_finite(model):
        raise CheckpointError(f"{what} has weights that are NaN or infinite ({some(bad)}): begin from a sound one")


def check_end(model: nn.Module, *, rate: float) -> None:
    """Raise InputError where a trained model has weights that are NaN or infinite."""
    if bad := _not_finite(model):
        said = f"the last update made weights NaN or infinite ({some(bad)})"
        raise InputError(f"{said}: lower learning_rate ({rate})")


def _not_finite(model: nn.Module) -> list[str]:
    return [name for name, tensor in model.named_parameters() if not bool(torch.isfinite(tensor).all())]


class Minutes(TrainerCallback, ExportableState):
    """End the training, measured and saved, after ``minutes`` of wall-clock time, all its starts together."""

    def __init__(self, minutes: float, before: float = 0.0) -> None:
        self.minutes, self.before, self.began = minutes, before, time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self.before + time.perf_counter() - self.began

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """See TrainerCallback."""
        if self.seconds > 60 * self.minutes:
            control.should_training_stop = control.should_save = True
            control.should_evaluate = args.eval_strategy != "no"

    def state(self) -> dict[str, Any]:
        """See ExportableState."""
        return {"args": {"minutes": self.minutes, "before": self.seconds}, "attributes": {}}


class Saves(TrainerCallback):
    """A checkpoint every ``steps`` steps, or after each such part of all steps, beside those of what is measured."""

    def __init__(self, steps: float = 0.1) -> None:
        self.steps = steps

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """See TrainerCallback."""
        every = self.steps if self.steps >= 1 else math.ceil(state.max_steps * self.steps)
        if args.save_strategy != "no" and state.global_step % every == 0:
            control.should_save = True


class Shown(TrainerCallback):
    """A bar of the steps, and a line for each measurement, on standard error; ``doing``: what is going on."""

    def __init__(self, doing: str, shown: bool) -> None:
        self.doing, self.shown = doing, shown
        self.bar: Any = None

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """See TrainerCallback."""
        drawn = self.shown and state.is_world_process_zero
        how = {"desc": self.doing, "unit": "step", "disable": hidden(drawn)}
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, **how)

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """See TrainerCallback."""
        self.bar.update()

    def on_log(self, args: TrainingArguments, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """See TrainerCallback."""
        if self.bar is not None and "loss" in (logs or {}):
            self.bar.set_postfix(loss=f"{logs['loss']:.4f}", refresh=False)

    def on_evaluate(self, args: TrainingArguments, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """See TrainerCallback."""
        if self.shown and state.is_world_process_zero:
            values = {name.removeprefix("eval_"): x for name, x in (metrics or {}).items() if isinstance(x, float)}
            shown = ", ".join(f"{name} {x:.4f}" for name, x in values.items() if name not in SPEEDS)
            tqdm.write(f"{self.doing}, step {state.global_step:,}: {shown}", file=sys.stderr)

    def on_train_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """See TrainerCallback."""
        self.bar.close()


SPEEDS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "epoch")


def show_alone(trainer: transformers.Trainer, shown: Shown) -> None:
    """Have ``shown`` in the place of transformers' bar, which writes to standard output."""
    for kind in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(kind)
    trainer.add_callback(shown)


def learning_curve(rows: Sequence[Mapping[str, Any]], metric: str, path: Path) -> None:
    """Draw, as a PNG file, the loss of the training and the ``metric`` that measures it, from a Trainer's log history.

    Where matplotlib is missing or fails a warning says why, which loses nothing of a run.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure, memory = Figure(figsize=(6.4, 4.0), dpi=120, layout="constrained"), io.BytesIO()
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for where, value, colour in ((axes, "loss", "tab:blue"), (axes.twinx(), f"eval_{metric}", "tab:orange")):
            found = [row for row in rows if row.get(value) is not None]
            where.plot([row["step"] for row in found], [row[value] for row in found], color=colour, marker=".")
            where.set_ylabel(value, color=colour)
        axes.set_xlabel("optimiser steps")
        figure.savefig(memory, format="png")
    except (MemoryError, OSError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        warnings.warn(f"{path.name} could not be drawn ({reason}); the rest of the run is saved", stacklevel=3)
        return
    with atomic_write(path, "wb") as file:
        file.write(memory.getvalue())
