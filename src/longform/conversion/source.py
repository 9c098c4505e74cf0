"""The source of a conversion, opened: a folder, a hub name, or a model in memory. Weights are never unpickled."""

import copy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor
from transformers import AutoConfig
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel

from longform.conversion.families.registry import BY_MODEL_TYPE, check_model_type
from longform.errors import CheckpointError, ConversionError
from longform.files import check_utf_8, read_json
from longform.models.loading import quiet_transformers
from longform.pretrained.checkpoint_files import AGAIN, read_weights
from longform.pretrained.sentence_folder import SentenceFolder, read_sentence_folder
from longform.pretrained.weights import checked_config, load_tokenizer, reading

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
    try:
        return _open_folder(folder, str(source), tokenizer)
    except CheckpointError as error:
        raise ConversionError(str(error)) from error


def _open_folder(folder: Path, name: str, tokenizer: Any) -> Source:
    sentence_folder = read_sentence_folder(folder)
    encoder = folder / sentence_folder.encoder_path if sentence_folder else folder
    config = _read_config(encoder)
    if tokenizer is None and any((encoder / file).is_file() for file in TOKENIZER_FILES):
        tokenizer = load_tokenizer(encoder)
    return Source(
        name=name,
        config=config,
        architectures=config.architectures or [],
        tensors=read_weights(encoder),
        tokenizer=tokenizer,
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
    check_model_type(read_json(path, way_out=AGAIN).get("model_type"))
    with reading(path):
        return checked_config(AutoConfig.from_pretrained(folder))
