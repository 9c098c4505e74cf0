"""Hugging Face's Trainer with numbered steps, batches in parts of any length, and checkpoints that are whole."""

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from longform.errors import CheckpointError, InputError, require
from longform.inference.weights import quiet_transformers
from longform.training.engine.checkpoints import checkpoint_step, keep_only, load_weights, publish, reading, remove
from longform.training.engine.job import Job, Part
from longform.training.engine.kept_memory import kept_memory
from longform.training.engine.processes import is_lost, stopping_together
from longform.training.engine.run_folder import RunFolder
from longform.training.engine.sharding import is_sharded, is_shared_out, load_optimizer_shards, save_shards

SHOWN = 3  # names of weights in a message


def check_start(model: nn.Module, what: str) -> None:
    """Raise CheckpointError where weights of ``model``, called ``what``, are NaN or infinite before training."""
    if bad := _not_finite(model):
        raise CheckpointError(f"{what} has weights that are NaN or infinite ({_listed(bad)}): begin from a sound one")


def check_step(model: nn.Module, *, loss: float, gradient: float, step: int, learning_rate: float) -> None:
    """Raise InputError where a step's loss or gradient norm is not finite; the weights are those before its update."""
    if math.isfinite(loss) and math.isfinite(gradient):
        return
    said = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {gradient}"
    if bad := _not_finite(model):
        raise InputError(
            f"{said} at step {step}, because the update before it made weights NaN or infinite ({_listed(bad)}): "
            f"lower learning_rate ({learning_rate})"
        )
    raise InputError(
        f"{said} at step {step}, while every weight is finite: a text or label of this step gives numbers that are too "
        f'large. Look for labels of an extreme size, try dtype="float32", or lower learning_rate ({learning_rate})'
    )


def check_end(model: nn.Module, *, learning_rate: float) -> None:
    """Raise InputError where a trained model has weights that are NaN or infinite."""
    if bad := _not_finite(model):
        raise InputError(
            f"the last update made weights NaN or infinite ({_listed(bad)}): lower learning_rate ({learning_rate})"
        )


def _not_finite(model: nn.Module) -> list[str]:
    return [name for name, tensor in model.named_parameters() if not bool(torch.isfinite(tensor).all())]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


SCHEDULER = "scheduler.pt"  # its file in a checkpoint, as the Trainer calls it
LOGS = 100  # how many records of the loss a run writes at least


def training_arguments(
    job: Job, run: RunFolder, steps: int, evaluate_every: int | None, save_every: int | None, **more: Any
) -> TrainingArguments:
    """The Trainer's arguments; precision, batches, progress and records are ours."""
    require("accelerate", extra="train")
    settings = job.settings
    schedule = {"constant": "constant_with_warmup"}.get(settings.schedule, settings.schedule)
    return TrainingArguments(
        output_dir=str(run.folder),
        max_steps=steps,
        learning_rate=job.learning_rate,
        lr_scheduler_type=schedule,
        warmup_steps=int(settings.warmup * steps),
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        use_cpu=job.device.type == "cpu",
        disable_tqdm=True,
        report_to="none",
        logging_steps=max(1, min(50, steps // LOGS)),
        logging_nan_inf_filter=False,
        eval_strategy="no" if evaluate_every is None else "steps",
        eval_steps=evaluate_every,
        save_strategy="no" if save_every is None else "steps",
        save_steps=save_every or steps,
        ignore_data_skip=True,
        restore_callback_states_from_checkpoint=True,
        ddp_find_unused_parameters=True,  # a text within the window does not use the memory's parameters
        **more,
    )


def checkpoints_apart(job: Job, run: RunFolder, steps: int) -> int | None:
    """Steps between two checkpoints; None where the run's folder is not kept."""
    return (job.settings.save_every_steps or math.ceil(steps / 10)) if run.kept else None


class NumberedStepsTrainer(Trainer):
    """Trains on ``job.steps(n)``, whose n-th batch is the same in every run.

    A step is a list of parts; ``job.part_loss(model, part, share)`` is each part's share of the step's loss, and
    gradients are accumulated over the parts, so that a part need not be padded to another's length. ``measure()`` gives
    the metrics of an evaluation. Weights, optimiser, schedule and random states are saved as
    longform.training.engine.checkpoints says. Raises InputError at the first step whose loss or gradient is not finite.
    """

    def __init__(
        self,
        job: Job,
        args: TrainingArguments,
        *,
        measure: Callable[[], dict[str, float]],
        callbacks: list[TrainerCallback],
    ) -> None:
        model = job.trained
        had_cache = hasattr(model.config, "use_cache")
        shared_out = is_shared_out(model)
        nothing: Any = []  # measure() has its own; the Trainer insists on some
        super().__init__(model=model, args=args, eval_dataset=nothing, callbacks=callbacks)
        self.network, self.output = model, Path(str(args.output_dir))
        self.is_distributed_loading_by_transformers = shared_out  # the Trainer is to wrap it in nothing more
        if not had_cache and hasattr(model.config, "use_cache"):
            del model.config.use_cache  # set by the Trainer; not an encoder's business
        self.callback_handler.callbacks = [c for c in self.callback_handler.callbacks if not _prints(c)]
        self.job, self.measure, self.start_step = job, measure, 0

    def run(self, checkpoint: Path | None) -> None:
        """Train to the last step, from the beginning or from a checkpoint."""
        if checkpoint is not None and self._is_finished(checkpoint):
            return
        self.start_step = 0 if checkpoint is None else checkpoint_step(checkpoint) or 0
        with kept_memory(self.args.device):
            self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))

    def _is_finished(self, checkpoint: Path) -> bool:
        """Whether only the end is missing: then take up the last, or the best, weights."""
        with reading(checkpoint):
            self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        callbacks: Any = self.state.stateful_callbacks
        stopper = callbacks.get("EarlyStoppingCallback")
        stopped = stopper is not None and (
            stopper["attributes"]["early_stopping_patience_counter"] >= stopper["args"]["early_stopping_patience"]
        )
        if self.state.global_step < self.args.max_steps and not stopped:
            return False
        load_weights(self.network, self._best() if self.args.load_best_model_at_end else checkpoint)
        return True

    def _best(self) -> Path:
        return self.output / f"checkpoint-{self.state.best_global_step}"

    def get_train_dataloader(self) -> Any:
        """The numbered batches of this process, from the step at which the run stands."""
        return self.job.steps(self.start_step)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Forward and backward over the parts of one step; processes exchange gradients once."""
        model.train()
        total = torch.zeros((), device=self.args.device)
        whole = self._weight_of_step(inputs)
        parts = list(self.job.process.level(inputs))
        for number, (part, counts) in enumerate(parts):
            last = number == len(parts) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                with self.job.autocast():
                    loss = self.job.part_loss(model, part, part.weight / whole if counts else 0.0)
                self.accelerator.backward(loss)
            total += loss.detach()
        self.step_loss = total
        return total

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The norm of the step's gradient, once; nothing has been learned from the step yet."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        check_step(
            self.network,
            loss=float(self.step_loss),
            gradient=float(norm),
            step=self.state.global_step + 1,
            learning_rate=self.args.learning_rate,
        )
        return norm

    def _weight_of_step(self, parts: Sequence[Part]) -> float:
        """Weight of a whole step; over several processes, whose gradients are averaged, the mean."""
        own = sum(part.weight for part in parts)
        if self.args.world_size == 1:
            return own
        return float(self.accelerator.reduce(torch.tensor(float(own), device=self.args.device), reduction="mean"))

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: the Trainer's formula is for full attention."""
        return 0

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The job's."""
        self.optimizer = self.optimizer or self.job.make_optimizer(self.network)
        return self.optimizer

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        """``measure()``, logged."""
        self.network.eval()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.measure().items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        if self.args.should_save:
            assert output_dir is not None
            with quiet_transformers():
                self.network.save_pretrained(output_dir, state_dict=state_dict)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        final = self.output / f"checkpoint-{self.state.global_step}"
        incomplete = self.output / f"incomplete-{final.name}"
        if self.args.should_save:
            remove(incomplete)
        self.accelerator.wait_for_everyone()
        try:
            self._write_checkpoint(incomplete, final)
        except Exception as error:
            if is_lost(error):
                raise
            remove(incomplete)
            raise CheckpointError(
                f'"{final}" could not be saved: {error}. Earlier checkpoints are whole: '
                "make room and start again with the same output folder"
            ) from error
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            publish(incomplete, final)
            best = self.state.best_model_checkpoint
            keep_only(self.output, final, None if best is None else Path(best))
        self.accelerator.wait_for_everyone()

    def _write_checkpoint(self, incomplete: Path, final: Path) -> None:
        if is_shared_out(self.network):
            save_shards(self.network, self.optimizer, incomplete)
            if self.args.should_save:
                scheduler: Any = self.lr_scheduler
                torch.save(scheduler.state_dict(), incomplete / SCHEDULER)
        else:
            self.save_model(str(incomplete), _internal_call=True)
            self._save_optimizer_and_scheduler(str(incomplete))
        self._save_scaler(str(incomplete))
        self._save_rng_state(str(incomplete))
        if self.state.best_global_step == self.state.global_step:
            self.state.best_model_checkpoint = str(final)
        if self.args.should_save:
            stateful = [x for x in (*self.callback_handler.callbacks, self.control) if isinstance(x, ExportableState)]
            states: Any = {type(callback).__name__: callback.state() for callback in stateful}
            self.state.stateful_callbacks = states
            self.state.save_to_json(str(incomplete / "trainer_state.json"))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_weights(self.network, Path(resume_from_checkpoint))

    def _init_training_state(self, *args: Any, **options: Any) -> tuple[int, int]:
        with reading(self.output):
            begun = super()._init_training_state(*args, **options)
        if self.state.best_global_step and self._best().is_dir():
            self.state.best_model_checkpoint = str(self._best())  # the folder may have been moved
        return begun

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading(checkpoint or self.output):
            if checkpoint is None or not is_sharded(Path(checkpoint)):
                super()._load_optimizer_and_scheduler(checkpoint)
                return
            scheduler: Any = self.lr_scheduler
            scheduler.load_state_dict(torch.load(Path(checkpoint, SCHEDULER), weights_only=True))
            load_optimizer_shards(self.network, self.optimizer, scheduler, Path(checkpoint))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading(checkpoint or self.output):
            super()._load_rng_state(checkpoint)

    def _load_best_model(self) -> None:
        load_weights(self.network, self._best())


def _prints(callback: TrainerCallback) -> bool:
    return type(callback).__name__ in ("PrinterCallback", "ProgressCallback")


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
        with stopping_together(process), process.sharing(job.trained):
            job.train(run, shown=shown and process.is_main_process)
        job.opened.model.tie_weights()  # with what of it was not trained
        check_end(job.opened.model, learning_rate=job.learning_rate)
        with quiet_transformers():
            run.finish(lambda place: job.save(run, place), wait=process.wait_for_everyone)
    return run
