"""When a function may take kernels that know no graph and no onlooker, and no gradient."""

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter


def is_plain_inference(*tensors: Tensor | None) -> bool:
    """Whether ``tensors`` are plain, and without gradients."""
    return is_plain(*tensors) and not (
        torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    )


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether ``tensors`` are plain CPU tensors of one dtype, in eager mode, watched by nobody."""
    if not is_eager():
        return False
    given = [x for x in tensors if x is not None]
    first = given[0].dtype
    return all(type(x) in (Tensor, Parameter) and x.device.type == "cpu" and x.dtype == first for x in given)


def is_eager() -> bool:
    """Whether operations are just carried out: no graph is traced, no mode sees them, nothing transforms them."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return torch._C._len_torch_dispatch_stack() == 0 and not is_transformed()


def is_transformed() -> bool:
    """Whether torch.func's transforms or forward-mode differentiation are at work, which kernels of our own ignore."""
    return torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0
