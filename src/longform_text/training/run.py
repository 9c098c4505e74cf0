"""A training from its settings to its finished folder, the same for every kind."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, TrainingArguments

from longform.errors import ConfigurationError
from longform.functional.conditions import native_bfloat16
from longform.models.loading import quiet_transformers
from longform.pretrained.checkpoint_files import model_key
from longform_text.inference.loading import pick_device
from longform_text.training.run_folder import RunFolder, place_of_run
from longform_text.training.settings import TrainingSettings
from longform_text.training.trainer import (
    Minutes,
    Saves,
    Shown,
    Trainer,
    check_end,
    check_start,
    learning_curve,
    show_alone,
)

# What is other than transformers' default for every kind.
COMMON: Mapping[str, Any] = {
    "seed": 0,
    "weight_decay": 0.01,
    "warmup_steps": 0.1,  # a part of all steps
    "logging_steps": 0.01,
    "logging_nan_inf_filter": False,
    "save_total_limit": 1,
    "disable_tqdm": True,
    "remove_unused_columns": False,
    "restore_callback_states_from_checkpoint": True,
    "ddp_find_unused_parameters": True,  # a text within the window does not use the memory's parameters
    "accelerator_config": {"dispatch_batches": False},
}


def training_arguments(settings: TrainingSettings, output: str | Path | None, **more: Any) -> TrainingArguments:
    """Transformers' arguments for ``settings``: ours, the recipe's, ``more``, and those that were given.

    Where nothing is said of a dtype, products are in bfloat16 where CPU or GPU has it natively. Raises
    ConfigurationError for what transformers refuses.
    """
    given = dict(settings.arguments)
    given.pop("save_steps", None)  # see Saves
    chosen: dict[str, Any] = {**COMMON, **settings.recipe, **more, **given}
    device = pick_device("cpu" if chosen.get("use_cpu") else "auto")
    if not {"bf16", "fp16"} & given.keys():
        chosen["bf16"] = native_bfloat16(device)
    chosen["use_cpu"] = device.type == "cpu"
    chosen.setdefault("dataloader_pin_memory", device.type == "cuda")
    if chosen.get("eval_strategy") == "no":
        chosen["load_best_model_at_end"] = False
        if settings.recipe.get("eval_on_start"):  # before and after alone
            chosen |= {"eval_strategy": "steps", "eval_steps": 10**9}
    chosen["save_steps"] = 10**9
    if chosen.get("load_best_model_at_end"):
        chosen |= {"save_strategy": chosen["eval_strategy"], "save_steps": chosen.get("eval_steps") or 500}
    try:
        made = TrainingArguments(output_dir=str(output or "unused"), **chosen)
    except (ValueError, TypeError, NotImplementedError, RuntimeError, OSError) as error:
        raise ConfigurationError(f"TrainingArguments: {' '.join(str(error).split())}") from error
    if made.n_gpu > 1:
        made._n_gpu = 1  # one process trains on one GPU; torchrun starts one for each
    return made


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Result of every training: optimiser ``steps``, wall-clock ``seconds`` of this call, and the Trainer's log history
    in ``records``; ``output``: the finished folder, where one was asked for.
    """

    steps: int
    seconds: float
    records: list[dict[str, Any]] = field(repr=False)
    output: Path | None


class Run:
    """One call of a training. ``folder``: where it stands, see ``begin``; ``shown``: whether progress is."""

    folder: RunFolder

    def __init__(self, settings: Any, arguments: Any, output: Path | None, restart: bool, progress: bool) -> None:
        self.settings, self.arguments, self.output, self.restart = settings, arguments, output, restart
        self.shown, self.began = progress and arguments.process_index == 0, time.perf_counter()

    @property
    def place(self) -> Path:
        """Its folder on the disk, while it lasts."""
        return Path(self.arguments.output_dir)

    def begin(self, kind: str, model: Any, /, **identity: Any) -> bool:
        """Open the folder; whether the run is complete. ``identity``: what else must be the same to go on."""
        check_start(model, "the model to train")
        own = {"kind": kind, "settings": self.settings.identity()}
        own |= {} if "model" in identity else {"model": model_key(model)}
        self.folder = RunFolder(self.place, own | identity, kept=self.output is not None, restart=self.restart)
        return self.folder.complete

    def train(self, trainer: Trainer, *, doing: str) -> list[dict[str, Any]]:
        """Train from where the run stands to the end: the log history. The model then has its final weights, the best
        where they are kept. ``doing``: what is shown to be going on.
        """
        args, settings, kept = trainer.args, self.settings, self.output is not None
        if kept:
            trainer.add_callback(Saves(settings.argument("save_steps") or 0.1))
        if settings.max_minutes is not None:
            trainer.add_callback(Minutes(settings.max_minutes))
        if patience := getattr(settings, "early_stopping_patience", None):
            trainer.add_callback(EarlyStoppingCallback(patience))
        show_alone(trainer, Shown(doing, self.shown))
        checkpoint = self.folder.checkpoint or settings.arguments.get("resume_from_checkpoint")
        if not kept and not args.load_best_model_at_end:
            args.save_strategy = "no"
        args.eval_on_start = args.eval_on_start and checkpoint is None
        if checkpoint is None or not trainer.take_up(Path(checkpoint)):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        check_end(trainer.model, rate=args.learning_rate)
        return trainer.state.log_history

    def finish(self, rows: list[dict[str, Any]], metric: str, save: Callable[[Path], None]) -> None:
        """Put what ``save`` writes, records and their curve into the finished folder."""

        def save_all(folder: Path) -> None:
            save(folder)
            learning_curve(rows, metric, folder / "learning_curve.png")

        with quiet_transformers():
            self.folder.finish(save_all, rows)

    def result(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Fields of a TrainingResult."""
        seconds = time.perf_counter() - self.began
        return {"steps": int(rows[-1]["step"]), "seconds": seconds, "records": rows, "output": self.output}


@contextlib.contextmanager
def run_in(
    output: str | Path | None,
    settings: TrainingSettings,
    inputs: Iterable[Any] = (),
    *,
    restart: bool = False,
    progress: bool = True,
) -> Generator[Run]:
    """A run in its folder, or in one that leaves nothing behind; see ``place_of_run``."""
    arguments = training_arguments(settings, output)
    run = Run(settings, arguments, None if output is None else Path(output).expanduser(), restart, progress)
    with place_of_run(output, inputs) as folder:
        arguments.output_dir = str(folder)
        yield run


def measured(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The rows of a log history with a measurement, whose names are without the prefix; ``name``: of one that each
    has.
    """
    found = [row for row in rows if f"eval_{name}" in row]
    return [{key.removeprefix("eval_"): value for key, value in row.items()} for row in found]
