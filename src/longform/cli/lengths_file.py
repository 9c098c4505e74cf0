"""The projected length k from a JSON or YAML file, such as ``longform spectrum`` writes."""

from pathlib import Path
from typing import Any, NamedTuple

from longform.conversion.defaults import slots_that_fit
from longform.errors import DataError, require

NAME, SHARING = "projected_length", "projection_sharing"


class GivenLengths(NamedTuple):
    """``lengths``: k as ``convert`` takes it. ``name``: of the file it stood in, or None.

    ``sharing`` and ``max_length`` (tokens at which k was measured): what stands beside it in the file, or None.
    """

    lengths: Any
    name: str | None = None
    sharing: str | None = None
    max_length: int | None = None

    def fitted(self, max_length: int, window: int | None, sinks: int) -> tuple["GivenLengths", str | None]:
        """With each k of a file raised to one that goes with these options, and what to say of that."""
        if self.name is None:
            return self, None
        fitting = slots_that_fit(self.lengths, max_length=max_length, window=window, sinks=sinks)
        if fitting == self.lengths:
            return self, None
        said = (
            f'k in "{self.name}" is raised where its slots do not divide a window of {window} or hold no more than '
            f"{sinks} sinks: {self.lengths} became {fitting}"
        )
        return self._replace(lengths=fitting), said

    def measured_elsewhere(self, max_length: int) -> str | None:
        """What to say where k was measured at another length than ``max_length``; None where not."""
        if self.max_length in (None, max_length):
            return None
        return (
            f'k in "{self.name}" was measured at {self.max_length:,} tokens, and the model is for {max_length:,}: it '
            f"keeps less of longer maps. --max-length {self.max_length} is the length measured"
        )


def read_lengths(given: Any) -> GivenLengths:
    """``given`` as it is, or, where it is the name of a file, what stands in it.

    The file holds a number, a list per layer or lists per head, alone or as ``projected_length`` among other things.
    Raises DataError where it cannot be read as that.
    """
    if not isinstance(given, str) or given == "auto":
        return GivenLengths(given)
    content = _content(given)
    fields = content if isinstance(content, dict) else {NAME: content}
    if not _is_lengths(fields.get(NAME)):
        raise DataError(
            f'"{given}" has no {NAME} that is a whole number, a list of them (one a layer) or a list of lists (heads)'
        )
    return GivenLengths(fields[NAME], given, fields.get(SHARING), fields.get("max_length"))


def _content(name: str) -> Any:
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError(f'{NAME}="{name}" is neither a number, a list nor a file that exists')
    yaml = require("yaml", extra="cli")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of a date, of digits
        raise DataError(f'"{path}" is neither JSON nor YAML: {error}') from error


def _is_lengths(value: Any, *, deep: int = 2) -> bool:
    if isinstance(value, list):
        return deep > 0 and bool(value) and all(_is_lengths(entry, deep=deep - 1) for entry in value)
    return isinstance(value, int) and not isinstance(value, bool)
