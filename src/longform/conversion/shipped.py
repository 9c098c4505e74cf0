"""Encoders known by a name of ours: those of installed packages, and long ones that adapters make of them.

An adapter that comes with Longform is added to its encoder once, in a folder of the cache (``LONGFORM_CACHE``, else
``longform`` in ``XDG_CACHE_HOME`` or ``~/.cache``); from then on that folder is loaded.
"""

import os
from pathlib import Path

from longform.conversion.adapter import SHIPPED, shipped
from longform.conversion.convert import convert
from longform.data.bundled import bundled_encoder_folder
from longform.data.storage import locked
from longform.errors import MissingDependencyError
from longform.runs.digest import content_key, file_key

BUNDLED, HUB_NAME = "bundled", "sentence-transformers/all-MiniLM-L6-v2"


def local_source(source: str | Path) -> str:
    """Where an encoder is: the folder of "bundled" (all-MiniLM-L6-v2) or of an adapter's name; else as it is given.

    A folder that is called so comes first.
    """
    if source == BUNDLED:
        return str(bundled_encoder_folder())
    if source in shipped() and not Path(source).is_dir():
        return str(shipped_folder(str(source)))
    return str(source)


def shipped_folder(name: str) -> Path:
    """The folder of a long encoder whose adapter comes with Longform, made where the cache has none.

    Raises ConversionError where the encoder that it is for is neither installed nor to be had from the hub.
    """
    files = sorted(path for path in (SHIPPED / name).iterdir() if path.is_file())
    folder = cache() / f"{name}-{content_key([(path.name, file_key(path)) for path in files])}"
    with locked(folder.with_name(f".{name}.lock"), wait=True):
        if not folder.is_dir():
            convert(_encoder(), adapter=name).save_pretrained(folder)
    return folder


def cache() -> Path:
    """The folder of the cache, which need not be there."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("LONGFORM_CACHE") or home / "longform").expanduser()


def _encoder() -> str:
    try:
        return str(bundled_encoder_folder())
    except MissingDependencyError:
        return HUB_NAME
