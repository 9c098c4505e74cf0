"""Pretrained models from a folder or hub name, on a device, with errors that say what is wrong with the checkpoint."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from longform.errors import CheckpointError, ConfigurationError
from longform.functional.conditions import native_bfloat16
from longform.inference.compiling import compile_in_place
from longform.models.inference import pack_weights
from longform.models.modeling_linformer import LinformerPreTrainedModel

MISSING = " (there is no such folder)"
OFFSET_FAMILIES = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "roberta-prelayernorm")


def pick_device(name: str = "auto") -> torch.device:
    """ "auto": the first GPU when there is one, else the CPU; any other name is torch's.

    Raises ConfigurationError for a name that torch does not know, and for a GPU that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigurationError(f'device is "{name}"; it is auto, cpu, cuda, cuda:1, ...') from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigurationError(
            f'device is "{name}", but torch sees {torch.cuda.device_count()} GPUs here: give cpu, or auto'
        )
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """ "float32", "bfloat16", or "auto": bfloat16 where the GPU or the CPU (AMX, AVX512-bf16) multiplies it faster.

    Raises ConfigurationError for another name, and for "bfloat16" on a GPU or CPU that does not multiply it.
    """
    if name not in ("auto", "float32", "bfloat16"):
        raise ConfigurationError(f'dtype is "{name}"; it is "float32", "bfloat16" or "auto"')
    native = native_bfloat16(device)
    if name == "bfloat16" and not native and device.type in ("cpu", "cuda"):
        raise ConfigurationError(
            f'dtype is "bfloat16", which this {"CPU" if device.type == "cpu" else "GPU"} does not multiply (emulated, '
            'it is slower than float32): give "float32", or "auto"'
        )
    return torch.bfloat16 if name == "bfloat16" or (name == "auto" and native) else torch.float32


def load_pretrained(
    auto_class: Any, source: str | Path, *, dtype: str = "float32", device: str = "auto", compile: bool = False
) -> tuple[Any, Any]:
    """Model (in eval mode, on its device) and tokenizer of ``source``, a folder or hub name; safetensors only.

    ``compile``: Longforms, by torch.compile, when first called. Other Longforms on a CPU come with packed weights
    (``longform.pack_weights``): for inference alone. Raises ConfigurationError for what cannot be had of these.

    Raises CheckpointError for what is not there, is cut off, is a pickle, is another architecture, or lacks the
    weights of the head that ``auto_class`` asks for.
    """
    chosen = pick_device(device)
    wanted = pick_dtype(dtype, chosen)
    try:
        with quiet_transformers():
            model, info = auto_class.from_pretrained(
                source, output_loading_info=True, use_safetensors=True, dtype=wanted
            )
            tokenizer = AutoTokenizer.from_pretrained(source)
    except Exception as error:  # OSError, ValueError, KeyError, SafetensorError, RuntimeError: one for each fault
        raise unreadable(f'"{source}"', source, error) from error
    # The pooler is not used for embeddings, and encoders saved without it are whole.
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler.") and ".pooler." not in key)
    if missing:
        raise CheckpointError(
            f'"{source}" lacks the weights {", ".join(missing[:6])}{" ..." if len(missing) > 6 else ""} that '
            f"{type(model).__name__} needs; it was saved as {model.config.architectures}. "
            "A head must be trained (longform finetune) before it is used"
        )
    model = model.to(chosen).eval()
    if isinstance(model, LinformerPreTrainedModel) and not compile:
        pack_weights(model)
    return compile_in_place(model) if compile else model, tokenizer


def load_limited(auto_class: Any, source: str | Path, *, max_length: int | None, **how: Any) -> tuple[Any, Any, int]:
    """Model, tokenizer, and the most tokens that are given to it; ``how``: options of ``load_pretrained``."""
    model, tokenizer = load_pretrained(auto_class, source, **how)
    return model, tokenizer, checked_limit(token_limit(model, tokenizer), max_length, name=str(source))


def token_limit(model: Any, tokenizer: Any) -> int:
    """Most tokens, special ones included, that the model has positions for and its tokenizer gives."""
    return min(position_limit(model.config), tokenizer.model_max_length)


def position_limit(config: Any) -> int:
    """Most tokens, special ones included, that a model has positions for."""
    limit = getattr(config, "max_position_embeddings", None) or 10**9
    # a table of this family begins with the padding's rows
    return limit - config.pad_token_id - 1 if config.model_type in OFFSET_FAMILIES else limit


def checked_limit(limit: int, max_length: int | None, *, name: str) -> int:
    """``max_length`` where it is given; raises ConfigurationError when it is none, or the model has fewer positions."""
    if max_length is not None and max_length < 1:
        raise ConfigurationError(
            f"max_length is {max_length}; it is at least 1, or null (None) for all that {name} takes"
        )
    if max_length is not None and max_length > limit:
        raise ConfigurationError(
            f"max_length is {max_length:,}, but {name} takes {limit:,} tokens: lower it, or resize the model "
            "(model.resize_sequence_length) or convert it (longform convert) to that length"
        )
    return limit if max_length is None else max_length


@contextmanager
def quiet_transformers() -> Generator[None]:
    """No bars of transformers for weights and files, no table of weights: what is missing is raised as an error."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def unreadable(what: str, source: str | Path, error: Exception) -> CheckpointError:
    """The error to raise where ``what``, read from the folder or hub name ``source``, ended in ``error``."""
    said, hint = " ".join(str(error).split())[:300], _hint(source)
    if hint == MISSING and not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", str(source)):
        return CheckpointError(f"{what} cannot be loaded: there is no such folder")  # and no hub name either
    return CheckpointError(f"{what} cannot be loaded: {said}{hint}")


def _hint(source: str | Path) -> str:
    folder = Path(source)
    if not folder.is_dir():
        return "" if folder.exists() else MISSING
    names = {path.name for path in folder.iterdir()}
    if any(name.endswith(".bin") for name in names) and not any(name.endswith(".safetensors") for name in names):
        return " (its weights are a pickle, which is never read: save the model with safetensors)"
    return ""
