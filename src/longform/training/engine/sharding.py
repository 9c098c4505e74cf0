"""Weights that processes share out (FSDP2): a part of each in every process, a layer gathered while it computes."""

import copy
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from transformers.modeling_layers import GradientCheckpointingLayer

from longform.errors import ConfigurationError
from longform.training.engine.optimizers import MuonAdamW


def share_weights_out(model: nn.Module, device: str, *, dtype: torch.dtype) -> None:
    """Share the weights of ``model`` out among all processes, in place, with their gradients and what optimizers keep.

    Each layer is gathered by itself, in ``dtype``, when it is needed; gradients are summed in float32. What layers
    share (a projection, relative positions) is not in them: ``model`` owns it, and hands it to them. Raises
    ConfigurationError where torch is too old.
    """
    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise ConfigurationError(f"fsdp needs torch 2.13 or newer, and this is {torch.__version__}")
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for module in list(model.modules()):
        if isinstance(module, GradientCheckpointingLayer):  # Hugging Face's layers, and ours
            fully_shard(module, mesh=mesh, mp_policy=policy)
    # Outside a pass all parameters are then the parts that the optimizer knows: torch would keep the model's own ones
    # gathered after a forward pass without a backward one, as an evaluation before a checkpoint is.
    whole = fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    whole.set_reduce_scatter_unused_params(True)  # a text within the window does not use the memory's parameters


def is_shared_out(model: nn.Module) -> bool:
    """Whether its weights are."""
    return isinstance(model, FSDPModule)


def empty_copy(model: nn.Module) -> nn.Module:
    """A copy whose parameters have no content and take no memory."""
    parameters = {id(p): nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(model, parameters)


@torch.no_grad()
def make_whole(model: nn.Module, empty: nn.Module) -> None:
    """Undo in place what was done to ``model`` since ``empty`` was made of it, but for weights and training mode.

    Weights that were shared out are gathered: into the memory of the CPU, since they may be too large for a GPU.
    """
    parameters: dict[int, nn.Parameter] = {}
    for name, module in model.named_modules():
        own = empty.get_submodule(name)
        for each, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in parameters:  # tied ones stay tied
                parameters[id(parameter)] = nn.Parameter(_gathered(parameter), requires_grad=parameter.requires_grad)
            setattr(own, each, parameters[id(parameter)])
        for each, buffer in module.named_buffers(recurse=False):
            setattr(own, each, buffer)
        own.training = module.training
    vars(model).clear()
    vars(model).update(vars(empty))
    model.__class__ = type(empty)


def _gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor.detach()


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
