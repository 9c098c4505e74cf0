"""Pretrained models from a folder or hub name, on a device, compiled if asked, and the tokens that they take."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch.utils._triton import has_triton
from transformers import AutoModel

from longform.errors import CheckpointError, ConfigurationError
from longform.files import read_json
from longform.functional.conditions import native_bfloat16
from longform.models.configuration_linformer import LinformerConfig
from longform.models.graphs import capture
from longform.models.inference import pack_weights
from longform.models.text_reader import BareLinformer, reader_of
from longform.pretrained.checkpoint_files import AGAIN, read_weights
from longform.pretrained.weights import checked_config, load_tokenizer, load_whole, reading
from longform_text.inference.exported import load_exported
from longform_text.settings import check_device


def missing_compiler(device: torch.device) -> str:
    """Note on what torch.compile lacks for ``device``, and how to get it; "" where nothing is known to lack."""
    if device.type == "cuda":
        if not has_triton():
            return "torch.compile needs Triton on a GPU: pip install triton"
        if not any(shutil.which(name) for name in filter(None, (os.environ.get("CC"), "gcc", "clang"))):
            return "torch.compile needs a C compiler on a GPU: install one (apt-get install gcc), or name it by CC"
        return ""
    if device.type != "cpu" or sys.platform == "win32":
        return ""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name) is None:
        return (
            f"torch.compile needs a C++ compiler, and {name} was not found: install it (apt-get install g++), or name "
            "another by the environment variable CXX"
        )
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "torch.compile needs Python's headers (Python.h): install them (apt-get install python3-dev)"
    return ""


def compile_in_place(model: Any) -> Any:
    """Have the forward pass of a Longform compiled when it is first called; returns it.

    One graph serves every length. torch makes another for a batch of one text, and one for texts of exactly the
    maximal length (so at most four), each in tens of seconds for a model of base size.

    Raises ConfigurationError for a model that is not a Linformer, and where no compiler is found.
    """
    if reader_of(model) is None:
        raise ConfigurationError(f"compile is for Longform's own models, not {type(model).__name__}: convert it first")
    if lacking := missing_compiler(model.device):
        raise ConfigurationError(f"{lacking}; or leave compile out")
    model.compile(dynamic=True, fullgraph=True)
    return model


OFFSET_FAMILIES = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "roberta-prelayernorm", "mpnet")


def pick_device(name: str = "auto") -> torch.device:
    """ "auto": the first GPU of CUDA where there is one, else the CPU; any other name is torch's ("mps", "xpu", ...).

    Raises ConfigurationError for a name that torch does not know, and for a GPU that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_device(str(name))
    device = torch.device(name)
    there = getattr(getattr(torch, device.type, None), "device_count", lambda: 0)()  # torch.cuda's, torch.mps's
    if (device.index or 0) >= there:
        raise ConfigurationError(f'device is "{name}", but torch sees {there} of its kind here: give cpu, or auto')
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
    auto_class: Any,
    source: str | Path,
    *,
    dtype: str = "float32",
    device: str = "auto",
    compile: bool = False,
    backend: str = "torch",
    graphs: bool = True,
) -> tuple[Any, Any]:
    """Model (in eval mode, on its device) and tokenizer of ``source``, a folder or hub name; safetensors only.

    ``compile``: Longforms, by torch.compile, when first called. Other Longforms on a CPU come with packed weights
    (``longform.pack_weights``), on CUDA with passes captured unless ``graphs`` is false (``longform.capture``): for
    inference alone. ``backend``: "torch", or what runs the graph that ``longform
    export`` wrote (``load_exported``). Raises ConfigurationError for what cannot be had of these.

    Raises CheckpointError for what is not there, is cut off, is a pickle, is another architecture, or lacks weights
    (see ``check_weights``), those of the head that ``auto_class`` asks for among them.
    """
    if backend != "torch":
        return load_exported(auto_class, source, backend=backend, dtype=dtype, device=device, compile=compile)
    chosen = pick_device(device)
    wanted = pick_dtype(dtype, chosen)
    whole = load_bare(source, dtype=wanted) if auto_class is AutoModel else None
    if whole is None:
        whole = load_whole(auto_class, source, dtype=wanted)
    tokenizer = load_tokenizer(source, whole.config)
    model: Any = whole.to(chosen).eval()
    if reader_of(model) is not None and not compile:
        pack_weights(model)
        if graphs and chosen.type == "cuda":
            capture(model)
    return compile_in_place(model) if compile else model, tokenizer


def load_bare(source: str | Path, *, dtype: torch.dtype) -> BareLinformer | None:
    """The encoder of a folder of ours, with or without a head, whose weights fit exactly; None for all else, which
    transformers loads, or says what is wrong with: its models take three times as long to be imported as torch.
    """
    folder = Path(source)
    if not (folder / "config.json").is_file() or (folder / "adapter_config.json").exists():
        return None
    with reading(source):
        if read_json(folder / "config.json", way_out=AGAIN).get("model_type") != LinformerConfig.model_type:
            return None
        config: Any = checked_config(LinformerConfig.from_pretrained(folder))
    try:
        found = {name.removeprefix("linformer."): x for name, x in read_weights(folder).items()}
    except CheckpointError:
        return None
    config.name_or_path = str(source)
    model = BareLinformer(config)
    sizes = {name: x.shape for name, x in model.state_dict().items()}
    own = {name.split(".")[0] for name in sizes} | {"encoder", "embeddings_project"}
    mine = {name: x.to(dtype) for name, x in found.items() if name.split(".")[0] in own}
    if {name: x.shape for name, x in mine.items()} != sizes:
        return None
    model.load_state_dict(mine, assign=True)
    return model


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


def checked_limit(limit: int, max_length: int | None, *, name: str, what: str = "max_length") -> int:
    """``max_length``, a setting called ``what``, where it is given, else ``limit``.

    Raises ConfigurationError when it is less than 1, or the model has fewer positions.
    """
    if max_length is not None and max_length < 1:
        raise ConfigurationError(f"{what} is {max_length}; it is at least 1, or null (None) for all that {name} takes")
    if max_length is not None and max_length > limit:
        way = f": longform convert {name} OUTPUT --max-length {max_length}" if what == "max_length" else ""
        raise ConfigurationError(
            f"{what} is {max_length:,}, but {name} takes {limit:,} tokens: lower it, or make a longer model of it{way}"
        )
    return limit if max_length is None else max_length
