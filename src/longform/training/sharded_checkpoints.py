"""Checkpoints that processes write together, each its part, in safetensors; any number of processes reads them.

torch.distributed.checkpoint knows which file has which part of a tensor. What is no tensor (rates, decays) is not
saved: settings and schedule have it.
"""

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from longform.training.optimizers import MuonAdamW

SHARDS = "shards"  # the folder in a checkpoint


def is_sharded(checkpoint: Path) -> bool:
    """Whether processes wrote it together."""
    return (checkpoint / SHARDS).is_dir()


def save_shards(model: nn.Module, optimizer: Any, checkpoint: Path) -> None:
    """Write weights and what the optimizer keeps. Raises OSError in all processes where one of them cannot."""
    kept: Any = get_optimizer_state_dict(model, _parts(optimizer))
    state = {"model": _weights(model), "optimizer": kept["state"]}
    with _failing_as_oserror():
        dcp.save(state, storage_writer=HuggingFaceStorageWriter(str(checkpoint / SHARDS), save_distributed=True))


def load_model_shards(model: nn.Module, checkpoint: Path) -> None:
    """Take up the weights, whole or this process's part of them. Raises OSError where that is not possible."""
    state = _weights(model)
    _read({"model": state}, checkpoint)
    set_model_state_dict(model, state, options=StateDictOptions(strict=False))  # without the other names of tied ones


def _weights(model: nn.Module) -> dict[str, Any]:
    """Tensors by name, those that are tied once."""
    once = {name for name, _ in model.named_parameters()}
    others = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
    return {name: tensor for name, tensor in get_model_state_dict(model).items() if name not in others}


def load_optimizer_shards(model: nn.Module, optimizer: Any, scheduler: Any, checkpoint: Path) -> None:
    """Take up what the ``optimizer`` of ``model`` keeps; its rates are those of ``scheduler``, which has been loaded.

    Raises OSError where that is not possible.
    """
    state: Any = get_optimizer_state_dict(model, _parts(optimizer))
    _read({"optimizer": state["state"]}, checkpoint)
    set_optimizer_state_dict(model, _parts(optimizer), state)
    if isinstance(own := _unwrapped(optimizer), MuonAdamW):
        own.link()
    for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        group["lr"] = rate


def _unwrapped(optimizer: Any) -> Any:
    return getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it


def _parts(optimizer: Any) -> list[Optimizer]:
    own = _unwrapped(optimizer)
    return own.parts if isinstance(own, MuonAdamW) else [own]


def _read(state: dict[str, Any], checkpoint: Path) -> None:
    with _failing_as_oserror(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # of one process, as is meant
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(checkpoint / SHARDS)))


@contextmanager
def _failing_as_oserror() -> Generator[None]:
    """torch's error is no Exception, and has one for each process."""
    try:
        yield
    except CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        raise OSError(f"{type(first).__name__}: {first}") from error
