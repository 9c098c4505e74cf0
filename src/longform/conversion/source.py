"""The source of a conversion, opened: a folder, a hub name, or a model in memory. Weights are never unpickled."""

import copy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel

from longform.conversion.families.registry import BY_MODEL_TYPE, check_model_type
from longform.conversion.sentence_transformers_folder import SentenceFolder, read_json, read_sentence_folder
from longform.errors import ConversionError
from longform.models.loading import quiet_transformers
from longform.runs.output import check_utf_8

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FOREIGN_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
ADAPTED = " (an adapter by PEFT: give the model that it makes with its base, model.merge_and_unload())"
HUB_LEFT_OUT = ["onnx/*", "openvino/*", "coreml/*"]


@dataclass(frozen=True)
class Source:
    """A source, read: its configuration, class names, weights by their own names, and what goes with it."""

    name: str
    config: PreTrainedConfig
    architectures: list[str]
    tensors: dict[str, Tensor]
    tokenizer: Any = None
    sentence_folder: SentenceFolder | None = None
    folder: Path | None = None


def open_source(source: str | Path | PreTrainedModel, *, tokenizer: Any = None) -> Source:
    """Read a folder, a hub name or a loaded model. Raises ConversionError where there is nothing to convert."""
    if isinstance(source, PreTrainedModel):
        return _open_model(source, tokenizer)
    if not isinstance(source, str | Path):
        raise ConversionError(
            f"the source must be a folder, a hub name or a loaded PreTrainedModel, not a {type(source).__name__}"
            f"{ADAPTED if hasattr(source, 'peft_config') else ''}"
        )
    folder = _find_folder(source)
    sentence_folder = read_sentence_folder(folder)
    encoder = folder / sentence_folder.encoder_path if sentence_folder else folder
    config = _read_config(encoder)
    return Source(
        name=str(source),
        config=config,
        architectures=config.architectures or [],
        tensors=read_weights(encoder),
        tokenizer=_read_tokenizer(encoder) if tokenizer is None else tokenizer,
        sentence_folder=sentence_folder,
        folder=folder,
    )


def _open_model(model: PreTrainedModel, tokenizer: Any) -> Source:
    check_model_type(model.config.model_type)
    if hasattr(model, "peft_config"):
        raise ConversionError(f"the source is a {type(model).__name__} with other layers in it{ADAPTED}")
    family = BY_MODEL_TYPE.get(model.config.model_type)
    if family is not None and family.other_names:
        with TemporaryDirectory() as folder:
            with quiet_transformers():
                model.save_pretrained(folder)
            tensors = read_weights(Path(folder))
    else:
        tensors = {key: tensor.detach() for key, tensor in model.state_dict().items()}
    name = model.config._name_or_path or type(model).__name__
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    return Source(name=name, config=config, architectures=config.architectures, tensors=tensors, tokenizer=tokenizer)


def _find_folder(source: str | Path) -> Path:
    folder = Path(source).expanduser()
    check_utf_8(folder)
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise ConversionError(f"{source} is a file; give the folder with its config.json")
    if isinstance(source, Path) or str(source).startswith((".", "/", "~")) or str(source).count("/") > 1:
        raise ConversionError(f"there is no folder {source}")
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(str(source), allow_patterns=HUB_FILES, ignore_patterns=HUB_LEFT_OUT)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConversionError(
            f"{source!r} is neither a folder here nor a model that the hub gives ({type(error).__name__}: {reason})"
        ) from error
    return Path(found)


def _read_config(folder: Path) -> PreTrainedConfig:
    path = folder / "config.json"
    if not path.is_file():
        adapted = ADAPTED if (folder / "adapter_config.json").is_file() else ""
        raise ConversionError(
            f"{folder} has no config.json: it is not the folder of a saved Hugging Face model{adapted}"
        )
    content = read_json(path)
    if not isinstance(content, dict):
        raise ConversionError(f"{path} does not hold an object")
    check_model_type(content.get("model_type"))
    try:
        return checked_config(AutoConfig.from_pretrained(folder))
    except Exception as error:
        raise ConversionError(f"{path} is not a valid configuration: {error}") from error


def checked_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """``config`` itself. Raises ValueError where ``architectures``, which transformers does not look at, is no list of
    names.
    """
    found = config.architectures
    if found is not None and not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise ValueError(f"architectures={found!r} must be a list of names of classes, or null")
    return config


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


def _read_tokenizer(folder: Path) -> Any:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise ConversionError(f"the tokenizer in {folder} cannot be read: {error}") from error
