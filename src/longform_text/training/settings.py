"""Settings of a training: a few of our own, and any field of transformers.TrainingArguments by its own name.

Nothing of torch or transformers is imported here: ``--help`` and refusals read this file and are to be quick.
"""

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

from longform.choices import did_you_mean
from longform.errors import ConfigurationError
from longform_text.settings import Settings, check_choices, check_device, check_positive

OURS = ("output_dir", "do_train", "do_eval", "do_predict", "local_rank")  # of transformers' fields, not to be chosen
# Of one run and of the same, gone on with, these may differ.
MAY_DIFFER = (
    "use_cpu", "report_to", "run_name", "project", "disable_tqdm", "resume_from_checkpoint", "push_to_hub", "hub_*",
    "logging_*", "log_*", "save_*", "dataloader_*", "ddp_*", "skip_memory_metrics", "per_device_eval_batch_size",
    "max_minutes", "tokens_per_forward", "torch_compile*",
)  # fmt: skip


@cache
def argument_types() -> Mapping[str, str]:
    """Fields of transformers.TrainingArguments with their types, as its source says them; it need not be imported."""
    package = find_spec("transformers")
    if package is None or not package.submodule_search_locations:
        raise ConfigurationError("training needs transformers")
    source = Path(package.submodule_search_locations[0], "training_args.py").read_text(encoding="utf-8")
    found = next(
        each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == "TrainingArguments"
    )
    every = {
        each.target.id: ast.unparse(each.annotation)
        for each in found.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return {name: kind for name, kind in every.items() if name not in OURS and not name.startswith("_")}


def _use_cpu(device: str) -> bool | None:
    check_device(device)
    if ":" in device:
        raise ConfigurationError(f"device={device}: a training takes one GPU by CUDA_VISIBLE_DEVICES={device[5:]}")
    return True if device == "cpu" else None


def _bf16(dtype: str) -> bool | None:
    if dtype not in (chosen := {"auto": None, "bfloat16": True, "float32": False}):
        raise ConfigurationError(f"dtype={dtype} is none of {', '.join(chosen)}; it is bf16=True or False now")
    return chosen[dtype]


def _measured(times: Any) -> dict[str, Any]:
    """So many measurements between the beginning and the end."""
    return {"eval_steps": 1 / (int(times) + 1)} if int(times) else {"eval_strategy": "no"}


def _gone(value: Any) -> None:
    raise ConfigurationError("max_tokens is gone: give max_steps, the optimiser steps of the run")


# Names of before, understood for a release, with those of now; and what the values of some are now.
BEFORE: Mapping[str, str] = {
    "epochs": "num_train_epochs", "batch_size": "per_device_train_batch_size", "warmup": "warmup_steps",
    "schedule": "lr_scheduler_type", "save_every_steps": "save_steps", "metric": "metric_for_best_model",
    "early_stopping": "early_stopping_patience", "gradient_checkpointing": "activation_checkpointing",
    "dtype": "bf16", "device": "use_cpu", "evaluations": "eval_steps", "max_tokens": "max_steps",
}  # fmt: skip
VALUES: Mapping[str, Callable[[Any], Any]] = {
    "schedule": lambda value: "constant_with_warmup" if value == "constant" else value,
    "dtype": _bf16,
    "device": _use_cpu,
    "evaluations": _measured,
    "max_tokens": _gone,
}


def modern(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the names of now for those of before, with a warning for each; None: nothing was said."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in BEFORE:
            found[name] = value
        elif value is not None:
            now = VALUES.get(name, lambda same: same)(value)
            warnings.warn(f"{name} is called {BEFORE[name]} now, as in transformers", FutureWarning, stacklevel=4)
            found |= now if isinstance(now, dict) else {} if now is None else {BEFORE[name]: now}
    return found


@dataclass(frozen=True, init=False)
class TrainingSettings(Settings):
    """Settings that every kind of training has; any other keyword is a field of transformers.TrainingArguments.

    Args:
        tokens_per_forward: tokens, padding included, that pass through the model at once; a batch of more accumulates
            gradients over parts of similar length.
        max_minutes: wall-clock minutes, of all starts together, after which the training ends.
        arguments: fields of transformers.TrainingArguments by name.

    Raises ConfigurationError for a name that neither knows, and for a value that cannot be.
    """

    recipe: ClassVar[Mapping[str, Any]] = {}  # fields of TrainingArguments that are other than there

    tokens_per_forward: int = 8192
    max_minutes: float | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __new__(cls, **options: Any) -> Self:
        """See ``__init__``, which knows more names than the dataclass has."""
        return object.__new__(cls)

    def __init__(self, *, arguments: Mapping[str, Any] | None = None, **options: Any) -> None:
        options = modern(options)
        for each in fields(self):
            default = {} if each.default is MISSING else each.default
            object.__setattr__(self, each.name, options.pop(each.name, default))
        for name in options:
            if name not in argument_types():
                raise ConfigurationError(f'there is no setting "{name}" in {type(self).__name__}{self._near(name)}')
        chosen = {**modern(arguments or {}), **options}
        if "num_train_epochs" in options and "max_steps" not in options:  # one length of a run in place of another
            chosen.pop("max_steps", None)
        said = {
            name: "no" if x is False and name.endswith("_strategy") else x for name, x in chosen.items()
        }  # YAML's no
        object.__setattr__(self, "arguments", said)
        self.check()

    def _near(self, name: str) -> str:
        """The nearest name there is, or all names."""
        own = self.__match_args__
        near = did_you_mean(name, [*own, *argument_types(), *BEFORE])
        for before, now in BEFORE.items():
            near = near.replace(f'"{before}"', f'"{now}"')
        return near or f"; there are {', '.join(own)}, and the fields of transformers.TrainingArguments"

    def check(self) -> None:
        """Raise ConfigurationError for a value that cannot be; of the arguments, those that transformers lets pass."""
        check_positive(self, "tokens_per_forward", "max_minutes")
        check_choices(self)
        if "max_steps" in self.recipe and "num_train_epochs" in self.arguments:
            raise ConfigurationError("num_train_epochs: this training makes its steps without end; give max_steps")
        for name in ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "max_grad_norm"):
            value = self.arguments.get(name, 1)
            least = value >= 0 if name == "max_grad_norm" else value > 0
            if not (least and value < float("inf")):
                raise ConfigurationError(f"{name}={value} must be more than 0, and finite")

    def argument(self, name: str, default: Any = None) -> Any:
        """The value of a field of TrainingArguments that was given, else the recipe's."""
        return self.arguments.get(name, self.recipe.get(name, default))

    @property
    def seed(self) -> int:
        """Seed of all that is drawn."""
        return self.argument("seed", 0)

    def described(self) -> dict[str, Any]:
        """Values that were chosen, and those of the recipe, by name; none that is None."""
        every = {**self.recipe, **self._chosen()}
        return {name.replace("_", " "): value for name, value in every.items() if value is not None}

    def identity(self) -> dict[str, Any]:
        """Settings that must be the same for an interrupted run to go on."""
        return {name: value for name, value in self._chosen().items() if not _may_differ(name)}

    def _chosen(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "arguments"} | dict(self.arguments)


def _may_differ(name: str) -> bool:
    return any(name == each or (each[-1] == "*" and name.startswith(each[:-1])) for each in MAY_DIFFER)
