"""Weights that processes share out (FSDP2): a part of each in every process, a layer gathered while it computes."""

import copy

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers.modeling_layers import GradientCheckpointingLayer

from longform.errors import ConfigurationError


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
