"""The check before a converted model is saved: its folder is empty, or holds an earlier conversion to overwrite."""

from pathlib import Path

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
