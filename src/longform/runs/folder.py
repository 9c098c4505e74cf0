"""The folder of a run: begun with some settings, gone on with only by the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longform.data.text import UNFINISHED, atomic_write
from longform.errors import CheckpointError, ConfigurationError
from longform.runs.subject import changed_fields


def open_run_folder(output: Path, identity: str, wanted: Mapping[str, Any], *, what: str) -> None:
    """Write ``wanted`` into the file ``identity`` of a new folder, or see that an old one was begun with the same.

    A folder that holds nothing else is new: the command was refused before it did anything. ``what``: what such a
    folder holds, for messages. Raises ConfigurationError that shows the difference, or for a folder of something else;
    CheckpointError for a damaged file.
    """
    path, now = output / identity, json.loads(json.dumps(wanted))
    if _others(output, path) and not path.exists():  # in this order: another process may begin it just now
        raise ConfigurationError(f'"{output}" is not empty, and holds no {what}: give another folder (--output)')
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f'"{path}" is damaged ({error}): give another --output') from error
        changed = changed_fields(before, now)
        if changed and _others(output, path):
            raise ConfigurationError(
                f'"{output}" holds {what} that were made with other settings ({"; ".join(changed)}): give the same, or '
                "another --output"
            )
        if not changed:
            return
    with atomic_write(path) as file:
        json.dump(now, file, indent=1)


def _others(output: Path, path: Path) -> bool:
    """Whether ``output`` holds anything but ``path``; files that are being written do not count."""
    found = output.iterdir() if output.is_dir() else ()
    return any(other != path and not other.name.endswith(UNFINISHED) for other in found)
