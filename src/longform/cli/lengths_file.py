"""k from a file, as ``longform spectrum`` writes it: JSON or YAML."""

from pathlib import Path
from typing import Any

from longform.errors import DataError, require

NAME, SHARING = "projected_length", "projection_sharing"


def read_lengths(given: Any) -> Any:
    """``given`` as it is, or, where it is the name of a file, the k that stands in it.

    The file holds a number, a list per layer or lists per head, alone or as ``projected_length`` among other things.
    Raises DataError where it cannot be read as that.
    """
    if not isinstance(given, str) or given == "auto":
        return given
    content = _content(given)
    found = content.get(NAME) if isinstance(content, dict) else content
    if not _is_lengths(found):
        raise DataError(
            f'"{given}" has no {NAME} that is a whole number, a list of them (one a layer) or a list of lists (heads)'
        )
    return found


def read_sharing(given: Any, *, otherwise: str) -> str:
    """The sharing that stands beside k in the file: heads of different k share nothing. Without it, ``otherwise``."""
    content = _content(given) if isinstance(given, str) and given != "auto" else None
    return content.get(SHARING, otherwise) if isinstance(content, dict) else otherwise


def measured_elsewhere(given: Any, max_length: int) -> str | None:
    """What to say where the file's k were measured at another length than ``max_length``; None where not."""
    content = _content(given) if isinstance(given, str) and given != "auto" else None
    at = content.get("max_length") if isinstance(content, dict) else None
    if at in (None, max_length):
        return None
    return (
        f'k in "{given}" was measured at {at:,} tokens, and the model is for {max_length:,}: it keeps less of longer '
        f"maps. --max-length {at} is the length measured"
    )


def _content(name: str) -> Any:
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError(f'{NAME}="{name}" is neither a number, a list nor a file that exists')
    yaml = require("yaml", extra="cli")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f'"{path}" is neither JSON nor YAML: {error}') from error


def _is_lengths(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_lengths(entry) for entry in value)
    return isinstance(value, int) and not isinstance(value, bool)
