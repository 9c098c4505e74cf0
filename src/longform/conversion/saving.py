"""A folder is written whole or not at all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from longform.errors import ConversionError

OWN_FILE = "conversion_report.json"


def check_output(folder: Path, *, overwrite: bool, source: Path | None = None) -> None:
    """Raise ConversionError where writing ``folder`` would destroy something.

    A folder that holds files is refused, unless ``overwrite`` is given and it is the result of an earlier conversion.
    """
    if folder.exists() and not folder.is_dir():
        raise ConversionError(f"{folder} is a file; give a folder")
    if source is not None and source.resolve().is_relative_to(folder.resolve()):
        raise ConversionError(f"{folder} holds the source; give another folder for the result")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise ConversionError(f"{folder} is not empty; give another folder, or overwrite=True (--overwrite)")
    if not (folder / OWN_FILE).is_file():
        raise ConversionError(
            f"{folder} is not empty and not the result of a conversion (it has no {OWN_FILE}), so it is not "
            "overwritten; give another folder"
        )


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Have ``write`` fill a temporary folder beside ``folder``, then put it in its place.

    If writing fails (a full disk), nothing is left behind, an existing folder stays, and ConversionError is raised.
    """
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    previous = folder.with_name(f".{folder.name}.previous-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        write(partial)
        if folder.exists():
            folder.rename(previous)
        try:
            partial.rename(folder)
        except BaseException:
            if previous.exists():
                previous.rename(folder)
            raise
    except (OSError, SafetensorError) as error:
        raise ConversionError(f"{folder} could not be written ({error}); nothing there was changed") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(previous, ignore_errors=True)
