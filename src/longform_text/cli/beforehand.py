"""Checks of the models and texts that a command names, before torch is imported, which takes seconds."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longform.choices import did_you_mean
from longform.conversion.shipped import BUNDLED, named_folder, shipped
from longform.errors import CheckpointError
from longform_text.data.text import look

DESCRIBED = ("config.json", "modules.json", "adapter_config.json")  # one is in every folder of a model
WEIGHTS = (".safetensors", ".bin", ".onnx", ".pt", ".h5", ".msgpack")  # which of them are read is said where they are


def check_models(*sources: str | Path | None) -> None:
    """Raise CheckpointError for what is neither a model's folder nor, as far as is known here, one on the hub."""
    for source in filter(None, sources):
        if named_folder(source) is None:
            _check_model(str(source))


def check_folder(folder: str | Path) -> None:
    """Raise CheckpointError for what is no model's folder, nor a name of one that comes with Longform."""
    if named_folder(folder) is None and not Path(folder).expanduser().is_dir():
        raise CheckpointError(f'"{folder}" is no folder: export reads a saved Longform, and writes beside it')
    check_models(folder)


def _check_model(source: str) -> None:
    place = Path(source).expanduser()
    if place.is_dir():
        if not any((place / name).is_file() for name in DESCRIBED):
            raise CheckpointError(f'the folder "{source}" has no {", no ".join(DESCRIBED)}: it is not a model\'s')
        alone = not any((place / name).is_file() for name in DESCRIBED[1:])
        if alone and not any(path.suffix in WEIGHTS for path in place.rglob("*")):
            raise CheckpointError(f'the folder "{source}" has no weights: no file in it ends in {", ".join(WEIGHTS)}')
        return
    near = did_you_mean(source, [BUNDLED, *shipped()])
    if place.exists() or source.startswith((".", "~", "/")) or source.count("/") > 1:
        raise CheckpointError(f'"{source}" is no folder{near}')
    _check_hub(source, near)


def _check_hub(source: str, near: str) -> None:
    """The part that needs the hub's package, which is some time in loading."""
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = any(isinstance(try_to_load_from_cache(source, name), str) for name in DESCRIBED)
    except HFValidationError as error:
        raise CheckpointError(f'"{source}" is no folder, and no name on the hub{near}') from error
    if constants.HF_HUB_OFFLINE and not cached:
        raise CheckpointError(
            f'"{source}" is no folder, and not in the local Hugging Face cache (offline mode, HF_HUB_OFFLINE){near}'
        )


def check_texts(*sources: str | Path | None, fields: Iterable[str | None] = ()) -> None:
    """Raise DataError for files and folders that are not there, of no kind that is read, empty, or without ``fields``
    in their first record; globs and URIs pass.
    """
    for source in filter(None, sources):
        look([source], *fields)


def remembered(model: str | Path) -> dict[str, Any]:
    """The fields of its fine-tuning's records that a model's folder names, {} where it names none."""
    with contextlib.suppress(OSError, ValueError):  # loading the model says it
        found = json.loads(Path(model, "config.json").read_text(encoding="utf-8"))
        known = found.get("fine_tuning") if isinstance(found, dict) else None
        return known if isinstance(known, dict) else {}
    return {}
