"""The fields of a settings dataclass as options of a command, with the help that its docstring gives."""

import re
from collections.abc import Collection
from dataclasses import fields
from inspect import getdoc
from typing import Any, TypeVar

from longform.cli.arguments import one_of

Settings = TypeVar("Settings")


def add_settings(
    parser: Any, settings: Any, *, but: Collection[str] = (), prefix: str = "", preset: bool = False
) -> None:
    """One option a field of the dataclass ``settings``: ``--learning-rate`` for ``learning_rate``; none for ``but``.

    ``preset``: what is not given is None, and a preset's.
    """
    helps = field_helps(settings)
    for field in fields(settings):
        if field.name in but:
            continue
        kind: Any = field.type
        default, said = (
            (None, f"{helps[field.name]} null: the preset's") if preset else (field.default, helps[field.name])
        )
        null = default is None
        named = "choices" in field.metadata
        how = one_of(field.metadata["choices"], null=null) if named else {"type": kind | None if preset else kind}
        parser.add_argument(option(prefix + field.name), **how, default=default, help=said)


def option(name: str) -> str:
    """The option for a field: "--learning-rate" for "learning_rate"."""
    return f"--{name.replace('_', '-')}"


def chosen_settings(settings: type[Settings], parsed: Any, **others: Any) -> Settings:
    """The settings that the parsed options ask for, and ``others``."""
    dataclass: Any = settings
    asked = {field.name: getattr(parsed, field.name) for field in fields(dataclass) if field.name not in others}
    return settings(**asked, **others)


def field_helps(settings: type) -> dict[str, str]:
    """What the ``Args:`` part of the docstring says about each field."""
    _, _, described = (getdoc(settings) or "").partition("Args:\n")  # Python 3.13 takes indentation away by itself
    described = described.split("\n\n")[0]
    parts = re.split(r"^ {4}(\w+): ", described, flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}
