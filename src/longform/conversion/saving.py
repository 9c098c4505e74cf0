"""The folder of a converted model: new, empty, or an earlier conversion that is to be replaced."""

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError
from longform.runs.files import read_json
from longform.runs.output import foreign, sole_output, some

OWN_FILE = "conversion_report.json"


@contextlib.contextmanager
def conversion_folder(folder: Path, source: Any, *, overwrite: bool) -> Generator[Path]:
    """``folder`` while it alone is written, its link followed.

    Raises ConfigurationError as ``sole_output`` does, and where the folder holds anything, unless it is to
    ``overwrite`` an earlier conversion and has nothing else.
    """
    with sole_output(folder, inputs=(source,), folder=True) as place:
        if place.is_dir() and any(place.iterdir()):
            if not overwrite:
                raise ConfigurationError(f'"{folder}" is not empty: give another folder, or overwrite=True (--restart)')
            _check_is_conversion(place)
        yield place


def _check_is_conversion(folder: Path) -> None:
    """Raise ConfigurationError unless the folder is as a conversion left it."""
    report = folder / OWN_FILE
    if not report.is_file():
        raise ConfigurationError(
            f'"{folder}" is not empty and not the result of a conversion (it has no {OWN_FILE}), so it is not '
            "overwritten: give another folder"
        )
    written = read_json(report, way_out="give another folder").get("files", {})
    if others := foreign(folder, written, but=(OWN_FILE,)):
        raise ConfigurationError(
            f'"{folder}" is not overwritten, since not all in it is as the conversion left it ({some(others)}): move '
            "that away, or give another folder"
        )
