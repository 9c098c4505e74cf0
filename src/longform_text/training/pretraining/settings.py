"""Settings of pre-training, with units, checked when made, and presets: settings under a name, in YAML files."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, get_args, get_type_hints

from longform.choices import PACKINGS
from longform.errors import ConfigurationError, require
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.settings import check_between, check_positive, one_of
from longform_text.training.settings import TrainingSettings, argument_types

MASKED, CAUSAL = "masked", "causal"
RECIPES = "recipes"  # the folder beside this file
PARTS = ("description", "tokenizer", "model", "training")


@dataclass(frozen=True, init=False)
class PretrainingSettings(TrainingSettings):
    """How a language model learns from scratch, beside the settings of every training.

    The recipe is RoBERTa's: Adam's moments 0.9 and 0.98, a rate that rises for 8 % of the steps to 5e-4 and falls
    linearly, one pass over the corpus where neither ``max_tokens`` nor ``max_steps`` is chosen; measured before, after
    and nine times between.

    Args:
        objective: "masked": the model fills in hidden tokens; "causal": it says each token from those before it, for
            which its attention needs a window and slots of runs (``projection`` not "linear" or "random").
        length: tokens of a block, special tokens included; default: all that the model takes.
        packing: "full": blocks are full, and a separator stands between the documents in them; "documents": no block
            holds two documents, and what is left of each is padded.
        max_documents: documents of the corpus that are used; default: all.
        tokens_per_step: tokens of one optimiser step, over all processes.
        max_tokens: tokens of training text, over all processes; of this and ``max_steps`` the smaller holds.
        mask_fraction: part of the content tokens (0 to 1) that a masked model is asked for; of these 80 % become the
            mask token, 10 % another token, and the rest stays as it is.
        validation_tokens: tokens held out for measuring, whole documents, at most a tenth of the corpus.

    Raises ConfigurationError for a value that cannot be.
    """

    recipe: ClassVar[Mapping[str, Any]] = {
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
    max_tokens: int | None = None
    mask_fraction: float = 0.15
    validation_tokens: int = 65_536

    def check(self) -> None:
        """See TrainingSettings."""
        super().check()
        check_positive(
            self, "length", "max_documents", "tokens_per_step", "max_tokens", "mask_fraction", "validation_tokens"
        )
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
    given = _parts(name)
    from longform.models.configuration_linformer import LinformerConfig

    model = _mapping(name, "model", given.get("model"))
    _check_names(name, "model", model, LinformerConfig.__annotations__)
    return Preset(
        str(given.get("description", "")),
        _made(name, TokenizerSettings, "tokenizer", given),
        model,
        _made(name, PretrainingSettings, "training", given),
    )


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


def _mapping(preset: str | Path, part: str, values: Any) -> dict[str, Any]:
    if not isinstance(values or {}, Mapping):
        raise ConfigurationError(f'the preset "{preset}" has {part}: {values!r}, which is not settings by name')
    return dict(values or {})


def _made(preset: str | Path, kind: Any, part: str, given: Mapping[str, Any]) -> Any:
    chosen, types = _mapping(preset, part, given.get(part)), get_type_hints(kind)
    others = argument_types() if kind is PretrainingSettings else {}
    _check_names(preset, part, chosen, [*(field.name for field in fields(kind)), *others])
    for name, value in chosen.items():
        kind_of: Any = types.get(name, object)
        allowed: Any = get_args(kind_of) or (kind_of,)  # of "int | None" both
        if name in types and type(value) not in allowed and not (type(value) is int and float in allowed):
            names = " or ".join("nothing" if one is NoneType else one.__name__ for one in allowed)
            raise ConfigurationError(f'the preset "{preset}" has {name}: {value!r} in {part}; it takes {names}')
    return kind(**chosen)


def _check_names(preset: str | Path, where: str, given: Any, known: Any) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigurationError(
            f'the preset "{preset}" has {where} {", ".join(map(repr, unknown))}, which is not known; '
            f"there are {', '.join(known)}"
        )
