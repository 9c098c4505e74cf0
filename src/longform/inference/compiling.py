"""Models by torch.compile, and what a machine lacks for it."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TypeVar

import torch
from torch.utils._triton import has_triton

from longform.errors import ConfigurationError
from longform.models.modeling_linformer import LinformerPreTrainedModel

Model = TypeVar("Model")


def missing_compiler(device: torch.device) -> str:
    """What torch.compile lacks for ``device``, and how to get it; "" where nothing is known to lack."""
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


def compile_in_place(model: Model) -> Model:
    """Have the forward pass of a Longform compiled when it is first called; returns it.

    One graph serves every length. torch makes another for a batch of one text, and one for texts of exactly the
    maximal length (so at most four), each in tens of seconds for a model of base size.

    Raises ConfigurationError for a model that is not a Linformer, and where no compiler is found.
    """
    if not isinstance(model, LinformerPreTrainedModel):
        raise ConfigurationError(f"compile is for Longform's own models, not {type(model).__name__}: convert it first")
    if lacking := missing_compiler(model.device):
        raise ConfigurationError(f"{lacking}; or leave compile out")
    model.compile(dynamic=True, fullgraph=True)
    return model
