"""Presets of pre-training: tokenizer, model and training settings under a name, as YAML files."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from longform.data.tokenizer_training import TokenizerSettings
from longform.errors import ConfigurationError, require
from longform.training.pretraining_settings import PretrainingSettings

RECIPES = "recipes"  # the folder beside this file
PARTS = ("description", "tokenizer", "model", "training")


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
    """What ``longform pretrain --help`` says about a preset."""
    return str(_parts(name).get("description", ""))


def load_preset(name: str | Path) -> Preset:
    """A preset by its name, or from a YAML file with the same parts.

    Raises ConfigurationError for an unknown name, part or field, and for values that cannot be.
    """
    from longform.models.configuration_linformer import LinformerConfig  # not above: --help reads descriptions alone

    given = _parts(name)
    model = dict(given.get("model") or {})
    _check_names(name, "model", model, LinformerConfig.__annotations__)
    return Preset(
        str(given.get("description", "")), _made(name, TokenizerSettings, given.get("tokenizer")), model,
        _made(name, PretrainingSettings, given.get("training")),
    )  # fmt: skip


def _parts(name: str | Path) -> Mapping[str, Any]:
    own = resources.files("longform.training") / RECIPES / f"{name}.yaml"
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


def _made(preset: str | Path, kind: Any, values: Any) -> Any:
    chosen = dict(values or {})
    _check_names(preset, kind.__name__, chosen, [field.name for field in fields(kind)])
    return kind(**chosen)


def _check_names(preset: str | Path, where: str, given: Any, known: Any) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigurationError(
            f'the preset "{preset}" has {where} {", ".join(map(repr, unknown))}, which is not known; '
            f"there are {', '.join(known)}"
        )
