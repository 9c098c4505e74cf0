"""The one question that kernels, caches and checks of values ask first: is this operation just carried out?"""

from enum import Enum

import torch
from torch.autograd import forward_ad


class Execution(Enum):
    """Ways in which a line of code may be running.

    PLAIN: it is carried out, and nobody looks on. OBSERVED: it is carried out, and a dispatch mode sees each operation
    (FlopCounterMode, fake tensors). TRANSFORMED: by torch.func or forward-mode differentiation. TRACED: a graph is made
    of it (torch.compile, torch.export, torch.jit.trace).
    """

    PLAIN = 0
    OBSERVED = 1
    TRANSFORMED = 2
    TRACED = 3


def execution_mode() -> Execution:
    """The way in which the calling line is running."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return Execution.TRACED
    if torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0:
        return Execution.TRANSFORMED
    return Execution.PLAIN if torch._C._len_torch_dispatch_stack() == 0 else Execution.OBSERVED


def has_values() -> bool:
    """Whether tensors have values that may be looked at: nothing is traced or transformed."""
    return execution_mode() in (Execution.PLAIN, Execution.OBSERVED)
