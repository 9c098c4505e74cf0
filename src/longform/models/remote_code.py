"""What lets a saved folder load in programs that import nothing of Longform: two files of code, named in ``auto_map``.

The files import the installed package; they hold no code of it. Auto classes read them with ``trust_remote_code=True``,
and say what to install where the package is missing. Where longform has been imported, its registered classes are taken
instead and nothing is asked.
"""

from pathlib import Path

from longform.data.storage import atomic_write
from longform.models.registration import AUTO_MODELS

CONFIGURATION, MODELS = "configuration_longform", "modeling_longform"
_HEAD = '"""Longform (pip install longform): classes of the installed package, for Hugging Face\'s Auto classes."""\n\n'


def auto_map() -> dict[str, str]:
    """``auto_map`` of a configuration: Auto class -> "file.class"."""
    models = {auto.__name__: f"{MODELS}.{model.__name__}" for auto, model in AUTO_MODELS.items()}
    return {"AutoConfig": f"{CONFIGURATION}.LinformerConfig", **models}


def write_code(folder: Path) -> None:
    """Write the two files that ``auto_map`` names."""
    names = ", ".join(sorted(model.__name__ for model in AUTO_MODELS.values()))
    for file, imported in ((CONFIGURATION, "LinformerConfig"), (MODELS, names)):
        with atomic_write(folder / f"{file}.py") as opened:
            opened.write(f"{_HEAD}from longform import {imported}  # noqa\n")
