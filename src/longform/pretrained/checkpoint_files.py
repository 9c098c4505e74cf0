"""Weights of a checkpoint in safetensors, which are never unpickled, read without transformers; keys of models."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from longform.digests import Digest, content_key, digests
from longform.errors import CheckpointError
from longform.files import read_json, reading

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")  # by their ends
FOREIGN = (*PICKLES, ".h5", ".msgpack")
HOLD_WEIGHTS = (".safetensors", ".bin")
TOKENIZER = ("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "sentencepiece", "spiece", "spm")
MODULES = "[0-9]_*/*"  # files of a sentence-transformers folder's other modules
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


def model_identity(model: str) -> dict[str, str | None]:
    """A hub name as it is; of a folder the whole path, and a key of its weights, JSON files and tokenizer."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return {"model": model, "weights_key": None}
    own = (f for f in folder.iterdir() if f.suffix in (*HOLD_WEIGHTS, ".json") or f.name.startswith(TOKENIZER))
    return {"model": str(folder.resolve()), "weights_key": content_key(digests(folder, [*own, *folder.glob(MODULES)]))}


def model_key(model: nn.Module) -> str:
    """A short name for a model's weights."""
    digest = Digest()
    for name, value in model.state_dict().items():
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        digest.add((name, str(value.dtype), value.shape, content.data))
    return digest.key
