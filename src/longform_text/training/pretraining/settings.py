"""Settings of pre-training, with units, checked when made, and presets: settings under a name, in YAML files."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from longform.choices import PACKINGS
from longform.errors import ConfigurationError, require
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.settings import check_between, check_positive, one_of
from longform_text.training.settings import TrainingSettings

MASKED, CAUSAL = "masked", "causal"
RECIPES = "recipes"  # the folder beside this file
PARTS = ("description", "tokenizer", "model", "training")


@dataclass(frozen=True, init=False)
class PretrainingSettings(TrainingSettings):
    """How a language model learns from scratch, beside the settings of every training.

    The recipe is RoBERTa's: Adam's moments 0.9 and 0.98, a rate that rises for 8 % of the steps to 5e-4 and falls
    linearly, one pass over the corpus where no ``max_steps`` are chosen; measured before, after and nine times between.

    Args:
        objective: "masked": the model fills in hidden tokens; "causal": it says each token from those before it, for
            which its attention needs a window and slots of runs (``projection`` not "linear" or "random").
        length: tokens of a block, special tokens included; default: all that the model takes.
        packing: "full": blocks are full, and a separator stands between the documents in them; "documents": no block
            holds two documents, and what is left of each is padded.
        max_documents: documents of the corpus that are used; default: all.
        tokens_per_step: tokens of one optimiser step, over all processes.
        mask_fraction: part of the content tokens (0 to 1) that a masked model is asked for; of these 80 % become the
            mask token, 10 % another token, and the rest stays as it is.
        validation_tokens: tokens held out for measuring, whole documents, at most a tenth of the corpus.

    Raises ConfigurationError for a value that cannot be.
    """

    recipe: ClassVar[Mapping[str, Any]] = {
        "num_train_epochs": 1.0,
        "learning_rate": 5e-4,
        "warmup_steps": 0.08,
        "adam_beta2": 0.98,
        "adam_epsilon": 1e-6,
        "eval_strategy": "steps",
        "eval_steps": 0.1,
        "eval_on_start": True,
        "dataloader_drop_last": True,
    }

    tokens_per_forward: int = 16_384
    objective: str = one_of((MASKED, CAUSAL), MASKED)
    length: int | None = None
    packing: str = one_of(PACKINGS, "full")
    max_documents: int | None = None
    tokens_per_step: int = 131_072
    mask_fraction: float = 0.15
    validation_tokens: int = 65_536

    def check(self) -> None:
        """See TrainingSettings."""
        super().check()
        check_positive(self, "length", "max_documents", "tokens_per_step", "mask_fraction", "validation_tokens")
        check_between(self, 0, 1, "mask_fraction")


@dataclass(frozen=True)
class Preset:
    """``model``: fields of a LinformerConfig; vocabulary and special tokens are the tokenizer's."""

    description: str
    tokenizer: TokenizerSettings
    model: dict[str, Any]
    training: PretrainingSettings


def preset_names() -> list[str]:
    """The presets that come with the package, smallest first."""
    return ["tiny", "small", "base"]


def preset_description(name: str | Path) -> str:
    """Description of a preset in ``longform pretrain --help``."""
    return str(_parts(name).get("description", ""))


def load_preset(name: str | Path) -> Preset:
    """A preset by its name, or from a YAML file with the same parts.

    Raises ConfigurationError for an unknown name, part or field, and for values that cannot be.
    """
    parts = _parts(name)
    from longform.models.configuration_linformer import LinformerConfig  # after refusals that need no torch

    made: dict[str, Any] = {}
    for part, make in (("model", dict), ("tokenizer", TokenizerSettings), ("training", PretrainingSettings)):
        given = parts.get(part) or {}
        if not isinstance(given, Mapping):
            raise ConfigurationError(f'the part {part} of the preset "{name}" is {given!r}, and has to be fields')
        try:
            made[part] = make(**given)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f'the part {part} of the preset "{name}" has a value that cannot be: {error}'
            ) from error
    _check_names(name, "model", made["model"], LinformerConfig.__annotations__)
    return Preset(str(parts.get("description", "")), **made)


def _parts(name: str | Path) -> Mapping[str, Any]:
    own = resources.files("longform_text.training.pretraining") / RECIPES / f"{name}.yaml"
    file = own if own.is_file() else Path(name)
    if not file.is_file():
        raise ConfigurationError(
            f'there is no preset "{name}"; there are {", ".join(preset_names())}, or give a YAML file'
        )
    yaml = require("yaml", extra="cli")
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of a date, of digits
        raise ConfigurationError(f'the preset "{name}" is not valid YAML: {error}') from error
    if not isinstance(given, Mapping):
        raise ConfigurationError(f'the preset "{name}" has no parts; it has {", ".join(PARTS)}')
    _check_names(name, "part", given, PARTS)
    return given


def _check_names(preset: str | Path, where: str, given: Any, known: Any) -> None:
    if unknown := [name for name in given if name not in known]:
        raise ConfigurationError(
            f'the preset "{preset}" has {where} {", ".join(map(repr, unknown))}, which is not known; '
            f"there are {', '.join(known)}"
        )
