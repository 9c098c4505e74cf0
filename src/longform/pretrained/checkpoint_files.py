"""Weights of a checkpoint in safetensors, which are never unpickled, read without transformers."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from longform.errors import CheckpointError
from longform.runs.files import read_json, reading

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")  # by their ends
FOREIGN = (*PICKLES, ".h5", ".msgpack")
AGAIN = "it may be missing or truncated: copy or download it again"


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's safetensors files by name. Raises CheckpointError where there are none to read."""
    if (folder / INDEX).is_file():
        names = sorted(set(read_json(folder / INDEX, way_out=AGAIN).get("weight_map", {}).values()))
    else:
        names = [WEIGHTS] if (folder / WEIGHTS).is_file() else []
    if not names:
        raise CheckpointError(_no_weights(folder))
    tensors: dict[str, Tensor] = {}
    for name in names:
        with reading(folder / name, way_out=AGAIN, errors=(SafetensorError, OSError, ValueError)):
            tensors |= load_file(folder / name)
    return tensors


def _no_weights(folder: Path) -> str:
    foreign = sorted(path.name for path in folder.iterdir() if path.suffix in FOREIGN)
    if not foreign:
        return f"{folder} has no {WEIGHTS}: there are no weights to convert"
    return (
        f"{folder} holds its weights in {', '.join(foreign)} and has no {WEIGHTS}. Longform never unpickles. If you "
        "trust the file, load it once with transformers and call save_pretrained, which writes safetensors, and "
        "convert that folder"
    )
