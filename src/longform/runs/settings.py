"""The base of settings that users give by name: a name that there is not is refused with what is near it."""

from typing import Any, ClassVar, Self

from longform.choices import did_you_mean
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
