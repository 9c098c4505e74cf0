"""Files of a checkpoint, read without transformers: JSON, and weights in safetensors, which are never unpickled."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from longform.errors import ConversionError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FOREIGN_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ConversionError, naming the file, where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConversionError(f"{path} cannot be read as JSON ({error}); it may be incomplete") from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's safetensors files by name. Raises ConversionError where there are none to read."""
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX)
        names = sorted(set(index.get("weight_map", {}).values()))
    elif (folder / WEIGHTS).is_file():
        names = [WEIGHTS]
    else:
        names = []
    if not names:
        raise ConversionError(_no_weights(folder))
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= _read_shard(folder / name)
    return tensors


def _read_shard(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConversionError(f"{path} is missing, though {INDEX} names it; copy the checkpoint again")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ConversionError(
            f"{path} cannot be read as safetensors ({error}); it may be truncated: copy or download it again"
        ) from error


def _no_weights(folder: Path) -> str:
    foreign = sorted(path.name for pattern in FOREIGN_WEIGHTS for path in folder.glob(pattern))
    if not foreign:
        return f"{folder} has no {WEIGHTS}: there are no weights to convert"
    return (
        f"{folder} holds its weights in {', '.join(foreign)} and has no {WEIGHTS}. Longform never unpickles. If you "
        "trust the file, load it once with transformers and call save_pretrained, which writes safetensors, and "
        "convert that folder"
    )
