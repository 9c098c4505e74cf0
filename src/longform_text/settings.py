"""The base of settings that users give by name, and their checks; nothing of torch is imported."""

import math
import re
from collections.abc import Iterable
from dataclasses import field, fields
from typing import Any, ClassVar, Self

from longform.choices import DEVICES, did_you_mean
from longform.errors import ConfigurationError


class Settings:
    """A dataclass's base. Raises ConfigurationError for a field that the dataclass does not have."""

    __match_args__: ClassVar[tuple[str, ...]]  # the dataclass's fields

    def __new__(cls, *values: Any, **options: Any) -> Self:
        """Check the names of ``options``."""
        known = cls.__match_args__
        for name in options:
            if name not in known:
                near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
                raise ConfigurationError(f'there is no setting "{name}" in {cls.__name__}{near}')
        return super().__new__(cls)


def one_of(choices: Iterable[str], default: str | None) -> Any:
    """A field of a settings dataclass that has one of ``choices``, which the command line shows too."""
    return field(default=default, metadata={"choices": tuple(choices)})


def check_positive(settings: Any, *names: str) -> None:
    """Raise ConfigurationError unless each is None or a finite number of more than 0."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigurationError(f"{name}={value} must be more than 0, and finite")


def check_least(settings: Any, **lowest: float) -> None:
    """Raise ConfigurationError unless each (of a list its smallest) is None or at least so much."""
    for name, low in lowest.items():
        value = getattr(settings, name)
        smallest = min(value) if isinstance(value, list) else value
        if smallest is not None and smallest < low:
            raise ConfigurationError(f"{name}={value} must be at least {low}")


def check_between(settings: Any, low: float, high: float, *names: str) -> None:
    """Raise ConfigurationError unless each is from ``low`` to ``high``."""
    for name in names:
        value = getattr(settings, name)
        if not low <= value <= high:
            raise ConfigurationError(f"{name}={value} must be between {low} and {high}")


def check_choices(settings: Any, **choices: Iterable[str]) -> None:
    """Raise ConfigurationError unless each is None where that is its default, or one of its choices.

    ``choices``: of fields that are not made by ``one_of``.
    """
    declared = {each.name: each.metadata["choices"] for each in fields(settings) if "choices" in each.metadata}
    for name, allowed in {**declared, **choices}.items():
        value = getattr(settings, name)
        if value not in allowed and not (value is None and getattr(type(settings), name, "") is None):
            near = did_you_mean(value, list(allowed))
            raise ConfigurationError(f'{name}="{value}"; it is one of {", ".join(allowed)}{near}')


def check_device(name: str) -> None:
    """Raise ConfigurationError for what is no device of torch's; whether it is there, torch knows."""
    if not re.fullmatch(rf"auto|({'|'.join(DEVICES)})(:\d+)?", name):
        raise ConfigurationError(f'device is "{name}"; it is auto, cpu, cuda, cuda:1, mps, xpu, ...')
